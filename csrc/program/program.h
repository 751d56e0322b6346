// A network that is ready to run: checked operations on one planned block of memory, the arena.
#pragma once
#include <exception>
#include <map>
#include <memory>
#include <vector>

#include "base/aligned_memory.h"
#include "program/arena_guard.h"
#include "program/reader.h"

namespace rbnn {

enum class Outcome { answered, image_not_finite, answer_not_finite, overflowed, interrupted };
constexpr const char* kNotFinite = "images hold NaN or infinite values";

using Floats = std::vector<const float*>;
using Bytes = std::vector<const std::uint8_t*>;

// Thrown by the constructor of a program if its call was stopped.
class Interrupted : public std::exception {};

class Program {
public:
    // Throws Invalid unless every operation is valid and each buffer is written once, before it is read.
    Program(std::vector<Buffer> buffers, const std::vector<Spec>& specs, std::vector<std::size_t> inputs,
            std::vector<std::size_t> outputs, const Kernels& kernels, Call& call);
    Program(const Program&) = delete;  // operations point into it

    // `images` has one array for each input and `outs` one for each output; each is N×C×H×W.  Any number of threads
    // may call this at once.  Infinite values and NaN are an error wherever they occur: later operations could hide
    // them, and each instruction set would hide them in a different way.
    Outcome run(const Floats& images, std::size_t count, const std::vector<float*>& outs, int threads,
                Call& call) const;
    // Takes images of bytes that are not normalised.  Throws Invalid unless the network begins by quantizing its only
    // input to bytes.
    Outcome run(const Bytes& images, std::size_t count, const std::vector<float*>& outs, int threads, Call& call) const;
    bool takes_bytes() const { return bytes_ != nullptr; }
    // Seconds of each operation for one image: the least of `repeats`, or of those before the call was stopped.  Throws
    // Invalid for an image that is not finite, or if `repeats` is not positive.
    std::vector<double> profile(const Floats& image, int repeats, int threads, Call& call) const;
    // What each operation writes for one image, by buffer; signs are ±1.  A buffer in `given` (height, width,
    // channels) is overwritten with those values before anything reads it, so that each operation can be tested on
    // chosen inputs.
    std::map<std::size_t, std::vector<float>> trace(const Floats& image,
                                                    const std::map<std::size_t, const float*>& given, Call& call) const;
    // The first operation that overflows, for images on which `run` reported an overflow.  Empty if the call was
    // stopped.
    std::string find_overflow(const Floats& images, std::size_t count, Call& call) const {
        return find(images, count, call);
    }
    std::string find_overflow(const Bytes& images, std::size_t count, Call& call) const {
        return find(images, count, call);
    }

    std::size_t inputs() const { return inputs_.size(); }
    const Buffer& input(std::size_t i) const { return buffers_[inputs_[i]]; }
    std::size_t outputs() const { return outputs_.size(); }
    const Buffer& output(std::size_t i) const { return buffers_[outputs_[i]]; }
    const std::vector<Buffer>& buffers() const { return buffers_; }
    const Kernels& kernels() const { return kernels_; }
    std::size_t arena_bytes() const { return arena_bytes_; }

private:
    class Lease;

    void check_order(const std::vector<Spec>& specs) const;
    void plan(const std::vector<Spec>& specs);
    void find_bytes(const std::vector<Spec>& specs);
    // Whether image `number` of each input is finite.
    bool finite(const Floats& images, std::size_t number) const;
    bool finite(const Bytes&, std::size_t) const { return true; }
    // Copies image `number` of each input into the arena and returns the first operation to run.
    std::size_t start(const Floats& images, std::size_t number, const Workspace& work) const;
    std::size_t start(const Bytes& images, std::size_t number, const Workspace& work) const;
    template <class Images>
    Outcome run_image(const Images& images, const std::vector<float*>& outs, std::size_t number,
                      const Workspace& work) const;
    template <class Images>
    Outcome run_all(const Images& images, std::size_t count, const std::vector<float*>& outs, int threads,
                    Call& call) const;
    template <class Images>
    std::string find(const Images& images, std::size_t count, Call& call) const;

    std::vector<Buffer> buffers_;        // with their places in the arena; operations point into this vector
    std::vector<Made> operations_;
    std::vector<std::string> names_;                 // of operations, as they appear in error messages
    std::vector<std::vector<std::size_t>> written_;  // the buffers that each operation writes
    std::vector<std::size_t> inputs_, outputs_;
    const Buffer* bytes_ = nullptr;      // the buffer that images of bytes may be written to directly, if there is one
    const Kernels& kernels_;
    std::size_t arena_bytes_ = 0;
    std::vector<Alive> places_;          // of buffers and scratch buffers
    // Protected by shared_lock:
    mutable std::size_t out_ = 0;               // arenas that callers hold
    mutable std::vector<AlignedBytes> arenas_;  // free arenas; a caller takes some and returns them
};

}  // namespace rbnn
