// Work without Python's global lock (GIL), in threads that may outlive Python.
#pragma once
#include <Python.h>

#include <chrono>
#include <thread>

namespace rbnn {

// Releases the GIL and takes it back in the destructor, like nanobind's gil_scoped_release.  If a daemon thread wants
// it back while the interpreter ends, Python (before 3.14) ends the thread with pthread_exit, which unwinds the stack.
// In a destructor that may not throw, this would abort the process.  Here the unwinding stops, and the thread sleeps
// until the process is gone.
class WithoutGil {
public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() { take(state_); }
    WithoutGil(const WithoutGil&) = delete;

    // Runs Python's signal handlers and returns whether one of them raised an exception, so that the work should end.
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
        } catch (...) {  // only that unwinding gets here
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }

    PyThreadState* state_;
};

}  // namespace rbnn
