// Work without Python's lock, in threads that may outlive Python.
#pragma once
#include <Python.h>

#include <chrono>
#include <thread>

namespace rbnn {

// Gives the lock up and takes it back at its end, like nanobind's gil_scoped_release.  A daemon thread that wants it back while
// the interpreter ends is ended by Python (before 3.14) with pthread_exit, which unwinds the stack: through a destructor that may
// not throw it would abort the process.  Here the unwinding stops, and the thread sleeps until the process is gone.
class WithoutGil {
public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() { take(state_); }
    WithoutGil(const WithoutGil&) = delete;

    // Whether Python wants the work to end: a signal's handler, run here and now, has raised an exception.
    bool interrupted() {
        take(state_);
        const bool raised = PyErr_CheckSignals() != 0;
        state_ = PyEval_SaveThread();
        return raised;
    }

private:
    static void take(PyThreadState* state) {
        try {
            PyEval_RestoreThread(state);
        } catch (...) {  // nothing but that unwinding
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }

    PyThreadState* state_;
};

}  // namespace rbnn
