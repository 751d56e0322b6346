// How often large operations check for an interruption.  Prints a line for each, with the checks and the pieces of work
// that it consists of, and fails if any piece went without a check.
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "ops/operations.h"

namespace {

using namespace rbnn;

constexpr std::size_t kPieces = 6;

bool enough(const char* name, const Made& made, std::vector<Buffer*> buffers, std::size_t passes) {
    std::size_t bytes = 0;
    for (Buffer* buffer : buffers) buffer->offset = bytes, bytes += buffer->bytes();
    made->scratch_offset = bytes;
    std::vector<double> arena((bytes + made->scratch_bytes) / sizeof(double) + 1, 0.0);
    std::size_t checks = 0;
    Call call([&] { return ++checks, false; }, std::chrono::milliseconds(0));
    made->run({reinterpret_cast<std::byte*>(arena.data()), 1, call});
    // One check may be missing at the end of each pass.
    const std::size_t least = passes * (kPieces - 1);
    std::printf("%s: %zu checks, at least %zu expected\n", name, checks, least);
    return checks >= least;
}

Buffer floats(std::size_t height, std::size_t width, std::size_t channels) {
    return {Buffer::Type::floats, height, width, channels};
}

}  // namespace

int main() {
    const std::size_t side = Call::kPiece / 1024;
    Buffer in = floats(kPieces * side, 1024, 1), out = in, one = floats(1, 1, 1);
    Buffer left = floats(kPieces, side, 1), right = floats(side, 1024, 1), product = floats(kPieces, 1024, 1);
    const Axes channels{false, false, true}, all{true, true, true};
    const std::vector<float> values(in.values());
    bool good = true;
    // A cell for each value: what is done for each cell is as much work as what is done for each value.
    good &= enough("standardize, a cell each", make_standardize(in, out, channels, 1, 1.0), {&in, &out}, 6);
    good &= enough("standardize, one cell", make_standardize(in, out, all, 1, 1.0), {&in, &out}, 3);
    good &= enough("softmax", make_softmax(in, out, channels, false), {&in, &out}, 4);
    good &= enough("mean", make_reduction(in, out, channels, Reduction::mean), {&in, &out}, 3);
    good &= enough("matmul", make_matmul(left, right, product), {&left, &right, &product}, 1);
    good &= enough("pad", make_pad(one, out, {0, 0, 0}, 0.0f), {&one, &out}, 1);
    good &= enough("constant", make_constant(out, values.data()), {&out}, 1);
    good &= enough("concat", make_concat({&in}, out, Along::height), {&in, &out}, 1);
    good &= enough("slice", make_slice(in, out, {0, 0, 0}, {1, 1, 1}), {&in, &out}, 1);
    std::vector<std::size_t> rows(in.height);
    std::iota(rows.rbegin(), rows.rend(), 0);
    good &= enough("select", make_select(in, out, Along::height, rows), {&in, &out}, 1);
    good &= enough("select, a value each", make_select(in, out, Along::channels, {0}), {&in, &out}, 1);
    Buffer pixel = floats(1, 1, kPieces * side), normed = pixel;
    const std::size_t window = 1024;  // of which no piece of the sum is longer
    good &= enough("local_norm, one pixel", make_local_norm(pixel, normed, {window, 1.0, 0.5, 1.0}), {&pixel, &normed},
                   1);
    return good ? 0 : 1;
}
