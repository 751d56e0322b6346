#include "program/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>

#include "base/aligned_memory.h"
#include "base/threads.h"
#include "program/make_operation.h"

namespace rbnn {
namespace {

constexpr std::size_t kLargestArena = std::size_t{1} << 32;
constexpr std::size_t kOperation = 1 << 17;  // roughly the number of values that a small operation works on
constexpr std::chrono::milliseconds kLongRound(100);  // a round of images that takes longer does not grow

std::vector<Buffer> check_buffers(std::vector<Buffer> buffers) {
    std::size_t values = 0;
    for (const Buffer& b : buffers) {
        if (b.height == 0 || b.height > kLargestSide || b.width == 0 || b.width > kLargestSide || b.channels == 0 ||
            b.channels > kLargestChannels || b.values() > kLargestBuffer)
            throw Invalid("a buffer has an impossible shape");
        // The tables of an operation grow with the pixels of its buffers, and a small file must not be able to demand
        // all memory.  Weights and borders grow with the kernel size and are counted when operations are made.
        values += b.values();
        if (values > kLargestNetwork) throw Invalid("the buffers together are too large");
    }
    return buffers;
}

}  // namespace

// The arenas of one call.  They are returned when it ends.
class Program::Lease {
public:
    Lease(const Program& program, std::size_t count) : program_(program) {
        const std::lock_guard<std::recursive_mutex> lock(shared_lock());
        free_.reserve(count);
        while (free_.size() < count && !program_.arenas_.empty()) {
            free_.push_back(std::move(program_.arenas_.back()));
            program_.arenas_.pop_back();
        }
        while (free_.size() < count) free_.emplace_back(program_.arena_bytes_);
        // Reserve room to return all of them, so that the destructor never allocates.
        program_.out_ += count;
        program_.arenas_.reserve(program_.out_ + program_.arenas_.size());
    }
    ~Lease() {
        const std::lock_guard<std::recursive_mutex> lock(shared_lock());
        program_.out_ -= free_.size();
        for (AlignedBytes& arena : free_) program_.arenas_.push_back(std::move(arena));
    }
    // For the threads of this call, of which at most `count` hold an arena at a time.
    AlignedBytes take() {
        std::lock_guard<std::mutex> lock(mutex_);
        AlignedBytes arena = std::move(free_.back());
        free_.pop_back();
        return arena;
    }
    void give(AlignedBytes arena) {
        std::lock_guard<std::mutex> lock(mutex_);
        free_.push_back(std::move(arena));
    }

private:
    const Program& program_;
    std::mutex mutex_;
    std::vector<AlignedBytes> free_;
};

Program::Program(std::vector<Buffer> buffers, const std::vector<Spec>& specs, std::vector<std::size_t> inputs,
                 std::vector<std::size_t> outputs, const Kernels& kernels, Call& call)
    : buffers_(check_buffers(std::move(buffers))), inputs_(std::move(inputs)), outputs_(std::move(outputs)),
      kernels_(kernels) {
    check_order(specs);
    Kept kept;
    for (const Spec& spec : specs) {
        if (call.stop()) throw Interrupted();
        operations_.push_back(make_operation(spec, buffers_, kernels_, kept));
        names_.push_back("'" + spec.name + "' (" + spec.kind + ")");
        written_.emplace_back();
        for (const auto& [role, index] : spec.outputs) written_.back().push_back(index);
    }
    plan(specs);
    find_bytes(specs);
}

void Program::check_order(const std::vector<Spec>& specs) const {
    const auto floats = [&](std::size_t i) { return i < buffers_.size() && buffers_[i].type == Buffer::Type::floats; };
    const auto all_floats = [&](const std::vector<std::size_t>& some) {
        return !some.empty() && std::all_of(some.begin(), some.end(), floats);
    };
    if (!all_floats(inputs_) || !all_floats(outputs_)) throw Invalid("input or output is not a float buffer");
    const std::set<std::size_t> given(inputs_.begin(), inputs_.end());
    if (given.size() != inputs_.size()) throw Invalid("two inputs are one buffer");
    std::set<std::size_t> written = given;
    for (const Spec& spec : specs) {
        for (const auto& [role, index] : spec.inputs)
            if (written.count(index) == 0)
                throw Invalid("operation '" + spec.name + "' reads " + role + " before anything has written it");
        for (const auto& [role, index] : spec.outputs)
            if (index >= buffers_.size() || !written.insert(index).second)
                throw Invalid("operation '" + spec.name + "' writes " + role + ", which is written already");
    }
    for (const std::size_t output : outputs_)
        if (given.count(output) != 0 || written.count(output) == 0) throw Invalid("nothing writes the output");
}

// Gives every buffer a place such that two buffers in use at the same time never overlap.  The largest is placed
// first, and each gets the lowest free place.  The scratch buffer of an operation is in use while the operation runs.
// A sum that is the last reader of its residual is written in the residual's place, because that memory is in the
// cache.
void Program::plan(const std::vector<Spec>& specs) {
    struct Life {
        std::size_t bytes, first, last, *offset;
    };
    std::vector<Life> lives;
    const std::size_t end = specs.size();
    std::vector<std::size_t> first(buffers_.size(), end + 1), last(buffers_.size(), 0);
    for (const std::size_t input : inputs_) first[input] = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        for (const auto& [role, index] : specs[i].outputs) first[index] = i, last[index] = std::max(last[index], i);
        for (const auto& [role, index] : specs[i].inputs) last[index] = i;
        if (operations_[i]->scratch_bytes != 0)
            lives.push_back({operations_[i]->scratch_bytes, i, i, &operations_[i]->scratch_offset});
    }
    for (const std::size_t output : outputs_) last[output] = end;
    std::vector<std::size_t> place(buffers_.size());  // the buffer whose place each buffer has
    std::iota(place.begin(), place.end(), std::size_t{0});
    for (std::size_t i = 0; i < specs.size(); ++i) {
        if (!operations_[i]->over_residual) continue;
        const std::size_t residual = specs[i].inputs.at("residual"), sum = specs[i].outputs.at("float");
        if (last[residual] != i) continue;
        place[sum] = place[residual];
        last[place[sum]] = last[sum];
    }
    for (std::size_t b = 0; b < buffers_.size(); ++b)
        if (first[b] <= end && place[b] == b)
            lives.push_back({buffers_[b].bytes(), first[b], last[b], &buffers_[b].offset});
    std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
    std::vector<const Life*> placed;
    for (const Life& life : lives) {
        std::size_t offset = 0;
        for (const Life* other : placed) {  // in the order of their offsets
            if (other->last < life.first || life.last < other->first) continue;
            if (offset + aligned(life.bytes + kGap) <= *other->offset) break;
            offset = std::max(offset, *other->offset + aligned(other->bytes + kGap));
        }
        *life.offset = offset;
        arena_bytes_ = std::max(arena_bytes_, offset + aligned(life.bytes + kGap));
        places_.push_back({offset, life.bytes, life.first, life.last});
        placed.insert(std::upper_bound(placed.begin(), placed.end(), &life,
                                       [](const Life* a, const Life* b) { return *a->offset < *b->offset; }),
                      &life);
    }
    for (std::size_t b = 0; b < buffers_.size(); ++b) buffers_[b].offset = buffers_[place[b]].offset;
    if (arena_bytes_ > kLargestArena) throw Invalid("the network needs more than 4 GB of memory to run");
}

// If only the first operation reads the input, and it quantizes it, images of bytes can replace its output.
void Program::find_bytes(const std::vector<Spec>& specs) {
    if (inputs() != 1) return;
    std::size_t readers = 0;
    for (const Spec& spec : specs)
        for (const auto& [role, index] : spec.inputs) readers += index == inputs_[0];
    if (readers == 1 && specs[0].kind == "quantize") bytes_ = &buffers_[specs[0].outputs.at("bytes")];
}

bool Program::finite(const Floats& images, std::size_t number) const {
    for (std::size_t i = 0; i < inputs(); ++i)
        if (!kernels_.all_finite(images[i] + number * input(i).values(), input(i).values())) return false;
    return true;
}

std::size_t Program::start(const Floats& images, std::size_t number, const Workspace& work) const {
    for (std::size_t i = 0; i < inputs(); ++i)
        kernels_.transpose(images[i] + number * input(i).values(), input(i).channels, input(i).pixels(),
                           work.floats(input(i)));
    return 0;
}

std::size_t Program::start(const Bytes& images, std::size_t number, const Workspace& work) const {
    kernels_.transpose_bytes(images[0] + number * input(0).values(), input(0).channels, input(0).pixels(),
                             work.bytes(*bytes_));
    return 1;
}

template <class Images>
Outcome Program::run_image(const Images& images, const std::vector<float*>& outs, std::size_t number,
                           const Workspace& work) const {
    if (!finite(images, number)) return Outcome::image_not_finite;
    const FloatFlags flags;
    ArenaGuard guard(places_, work.arena, arena_bytes_);
    for (std::size_t i = start(images, number, work); i < operations_.size(); ++i) {
        guard.at(i);
        operations_[i]->run(work);
        if (work.call.stop(kOperation)) return Outcome::interrupted;
    }
    guard.at(operations_.size());
    if (flags.overflowed() || work.call.overflowed) return Outcome::overflowed;
    for (std::size_t i = 0; i < outputs(); ++i) {
        const Buffer& result = output(i);
        float* out = outs[i] + number * result.values();
        kernels_.transpose(work.floats(result), result.pixels(), result.channels, out);
        if (!kernels_.all_finite(out, result.values())) return Outcome::answer_not_finite;
    }
    return Outcome::answered;
}

Outcome Program::run(const Floats& images, std::size_t count, const std::vector<float*>& outs, int threads,
                     Call& call) const {
    return run_all(images, count, outs, threads, call);
}

Outcome Program::run(const Bytes& images, std::size_t count, const std::vector<float*>& outs, int threads,
                     Call& call) const {
    if (!bytes_) throw Invalid("the network does not take bytes");
    return run_all(images, count, outs, threads, call);
}

template <class Images>
Outcome Program::run_all(const Images& images, std::size_t count, const std::vector<float*>& outs, int threads,
                         Call& call) const {
    threads = useful_threads(threads);
    // With several images each thread gets whole images; otherwise all threads work on the same image.
    // Only as many at a time as have room together.
    const std::size_t together =
        std::min({count, static_cast<std::size_t>(std::max(threads, 1)), kLargestArena / arena_bytes_});
    const bool apart = together > 1;
    Lease lease(*this, apart ? together : 1);
    std::atomic<Outcome> outcome{Outcome::answered};
    const auto go_on = [&] { return outcome == Outcome::answered && !call.stopped(); };
    const auto body = [&](std::size_t begin, std::size_t end) {
        AlignedBytes arena = lease.take();
        for (std::size_t i = begin; i < end && go_on(); ++i) {
            const Workspace work{reinterpret_cast<std::byte*>(arena.data()), apart ? 1 : threads, call};
            const Outcome one = run_image(images, outs, i, work);
            if (one != Outcome::answered) outcome = one;
        }
        lease.give(std::move(arena));
    };
    if (!apart) {
        body(0, count);
    } else {
        // Only the calling thread notices an interruption, and not while it waits for the others.  Therefore a large
        // batch has several rounds.
        using Clock = std::chrono::steady_clock;
        for (std::size_t first = 0, round = 8 * together; first < count && go_on();) {
            const Clock::time_point begun = Clock::now();
            const std::size_t some = std::min(count - first, round);
            parallel_for(some, 1, static_cast<int>(together),
                         [&](std::size_t begin, std::size_t end) { body(first + begin, first + end); });
            first += some;
            if (Clock::now() - begun < kLongRound) round *= 2;
        }
    }
    return call.stopped() ? Outcome::interrupted : outcome.load();
}

template <class Images>
std::string Program::find(const Images& images, std::size_t count, Call& call) const {
    Lease lease(*this, 1);
    AlignedBytes arena = lease.take();
    const Workspace work{reinterpret_cast<std::byte*>(arena.data()), 1, call};
    std::string found;
    const auto go_on = [&] { return found.empty() && !call.stop(kOperation); };
    for (std::size_t image = 0; image < count && go_on(); ++image) {
        if (!finite(images, image)) continue;
        for (std::size_t i = start(images, image, work); i < operations_.size() && go_on(); ++i) {
            const FloatFlags flags;
            operations_[i]->run(work);
            if (flags.overflowed()) found = names_[i];
        }
    }
    lease.give(std::move(arena));
    return found;
}

template std::string Program::find(const Floats& images, std::size_t count, Call& call) const;
template std::string Program::find(const Bytes& images, std::size_t count, Call& call) const;

std::vector<double> Program::profile(const Floats& image, int repeats, int threads, Call& call) const {
    using Clock = std::chrono::steady_clock;
    if (repeats < 1) throw Invalid("a profile needs at least one repeat, got " + std::to_string(repeats));
    if (!finite(image, 0)) throw Invalid(kNotFinite);
    std::vector<double> best(operations_.size(), 1e30);
    Lease lease(*this, 1);
    AlignedBytes arena = lease.take();
    const Workspace work{reinterpret_cast<std::byte*>(arena.data()), useful_threads(threads), call};
    for (int repeat = 0; repeat < repeats && !call.stop(); ++repeat) {
        for (std::size_t i = start(image, 0, work); i < operations_.size() && !call.stop(); ++i) {
            const auto start = Clock::now();
            operations_[i]->run(work);
            best[i] = std::min(best[i], std::chrono::duration<double>(Clock::now() - start).count());
        }
    }
    lease.give(std::move(arena));
    return best;
}

std::map<std::size_t, std::vector<float>> Program::trace(const Floats& image,
                                                         const std::map<std::size_t, const float*>& given,
                                                         Call& call) const {
    Lease lease(*this, 1);
    AlignedBytes arena = lease.take();
    const Workspace work{reinterpret_cast<std::byte*>(arena.data()), 1, call};
    std::map<std::size_t, std::vector<float>> seen;
    for (std::size_t i = start(image, 0, work); i < operations_.size() && !call.stop(); ++i) {
        operations_[i]->run(work);
        for (const std::size_t index : written_[i]) {
            const Buffer& buffer = buffers_[index];
            std::vector<float>& values = seen[index];
            values.resize(buffer.values());
            if (buffer.type == Buffer::Type::bits)
                unpack_rows(work.words(buffer), buffer.pixels(), buffer.channels, values.data());
            else if (buffer.type == Buffer::Type::bytes)
                std::copy_n(work.bytes(buffer), buffer.values(), values.data());
            else
                std::copy_n(work.floats(buffer), buffer.values(), values.data());
            const auto chosen = given.find(index);
            if (chosen == given.end()) continue;
            if (buffer.type == Buffer::Type::bits)
                pack_rows(chosen->second, buffer.pixels(), buffer.channels, work.words(buffer));
            else if (buffer.type == Buffer::Type::bytes)
                for (std::size_t v = 0; v < buffer.values(); ++v)  // with the arguments in this order, NaN becomes 0
                    work.bytes(buffer)[v] =
                        static_cast<std::uint8_t>(std::min(std::max(0.0f, chosen->second[v]), 255.0f));
            else
                std::copy_n(chosen->second, buffer.values(), work.floats(buffer));
        }
    }
    lease.give(std::move(arena));
    return seen;
}

}  // namespace rbnn
