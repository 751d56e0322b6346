// Kernels for the convolution of signs in training, with vectors of eight floats (vectors.h).

// Packs one plane per channel, one bit per pixel.  It works on half words, because there are as many 32-bit lanes as
// floats.
RBNN_INLINE void pack_planes(const PackRow& row) {
    const Floats level = load(row.level);
    const std::size_t p = row.padding, end = p + row.width;
    for (std::size_t remainder = 0; remainder < row.stride; ++remainder)
        for (std::size_t c = 0; c < row.channels; c += kLanes) {
            // The first padded column with this remainder that is inside the image.
            std::size_t column = p + (remainder + row.stride - p % row.stride) % row.stride;
            Ints half[2] = {};
            for (std::size_t h = 0; h < 2; ++h)
                for (; column < least(end, (h + 1) * 32 * row.stride); column += row.stride) {
                    const Ints above = load(row.x + (column - p) * row.channels + c) > level;
                    half[h] |= above & static_cast<std::int32_t>(std::uint32_t{1} << column / row.stride % 32);
                }
            for (std::size_t i = 0; i < kLanes; ++i)
                row.planes[remainder * row.channels + c + i] =
                    static_cast<std::uint32_t>(half[0][i]) | Word{static_cast<std::uint32_t>(half[1][i])} << 32;
        }
}

void pack_row(const PackRow& row) {
    pack_planes(row);
    pack(row.x, nullptr, nullptr, row.level, row.channels, row.width, row.pixels);
}

void pixels_to_planes(const float* pixels, const float* scale, std::size_t count, std::size_t channels,
                      std::size_t plane, float* planes) {
    for (std::size_t x = 0; x < count; x += kLanes)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            const float* from = pixels + x * channels + c;
            float* to = planes + c * plane + x;
            const std::size_t n = least(kLanes, count - x);
            const Floats factor = load(scale + c);
            Floats square[kLanes];
            for (std::size_t i = 0; i < kLanes; ++i) square[i] = i < n ? load(from + i * channels) * factor : Floats{};
            transpose_square(square);
            if (n == kLanes)
                for (std::size_t i = 0; i < kLanes; ++i) store(to + i * plane, square[i]);
            else
                for (std::size_t i = 0; i < kLanes; ++i)
                    for (std::size_t j = 0; j < n; ++j) to[i * plane + j] = square[i][j];
        }
}

// Reads up to seven floats beyond the row of a plane.
void planes_to_pixels(const float* planes, std::size_t plane, std::size_t count, std::size_t channels, std::size_t step,
                      float* pixels) {
    for (std::size_t x = 0; x < count; x += kLanes)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            Floats square[kLanes];
            for (std::size_t i = 0; i < kLanes; ++i) square[i] = load(planes + (c + i) * plane + x);
            transpose_square(square);
            for (std::size_t i = 0; i < least(kLanes, count - x); ++i) store(pixels + (x + i) * step + c, square[i]);
        }
}

void table_planes(const float* planes, std::size_t plane, std::size_t n, std::size_t entry, float* table) {
    for (std::size_t i = 0; i < n; i += kLanes) {
        const Floats g0 = load(planes + i), g1 = load(planes + plane + i);
        const Floats g2 = load(planes + 2 * plane + i), g3 = load(planes + 3 * plane + i);
        const Floats low[4] = {-g0 - g1, g0 - g1, g1 - g0, g0 + g1};
        const Floats high[4] = {-g2 - g3, g2 - g3, g3 - g2, g2 + g3};
        for (std::size_t h = 0; h < 4; ++h)
            for (std::size_t l = 0; l < 4; ++l) store(table + (4 * h + l) * entry + i, low[l] + high[h]);
    }
}

template <std::size_t kVectors>
RBNN_INLINE void add_vectors(const AddTables& job) {
    const float *table[kVectors], *tables = job.tables;
    for (std::size_t v = 0; v < kVectors; ++v) table[v] = tables + job.table_at[v];
    const std::uint16_t* offsets = job.offsets;
    const std::size_t count = job.count, plane = job.plane;
    float* sums = job.sums;
    for (std::size_t c = job.channels; c > 0; --c, sums += plane) {
        Floats acc[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) acc[v] = load(sums + job.sums_at[v]);
#pragma GCC unroll 4
        for (const std::uint16_t* end = offsets + count; offsets < end; ++offsets)
            for (std::size_t v = 0; v < kVectors; ++v) acc[v] += load(table[v] + *offsets);
        for (std::size_t v = 0; v < kVectors; ++v) store(sums + job.sums_at[v], acc[v]);
    }
}

void add_tables(const AddTables& job) {
    switch (job.vectors) {
        case 4: return add_vectors<4>(job);
        case 3: return add_vectors<3>(job);
        case 2: return add_vectors<2>(job);
        default: return add_vectors<1>(job);
    }
}

void table_subsets(const float* row, std::size_t first, std::size_t width, std::size_t channels, std::size_t groups,
                   std::size_t outputs, float* table) {
    for (std::size_t group = 0; group < groups; ++group, first += kGroup, table += kSums * outputs)
        for (std::size_t o = 0; o < outputs; o += kLanes) {
            Floats p[kGroup];
            for (std::size_t i = 0; i < kGroup; ++i)
                p[i] = first + i < width ? load(row + (first + i) * channels + o) : Floats{};
            const Floats low[4] = {Floats{}, p[0], p[1], p[0] + p[1]}, high[4] = {Floats{}, p[2], p[3], p[2] + p[3]};
            for (std::size_t h = 0; h < 4; ++h)
                for (std::size_t l = 0; l < 4; ++l)
                    store(table + (4 * h + l) * outputs + o, h == 0 ? low[l] : (l == 0 ? high[h] : low[l] + high[h]));
        }
}

void add_to_index(const Word* planes, std::size_t count, std::size_t shift, Word mask, std::size_t at,
                  std::uint32_t* index) {
    for (std::size_t c = 0; c < count; ++c) index[c] |= static_cast<std::uint32_t>((planes[c] >> shift & mask) << at);
}

// sums (count, kVectors vectors) += table[group][index[i] >> shift >> 4·group & 15] over kGroups groups.
template <class Vector, std::size_t kVectors, std::size_t kGroups>
RBNN_INLINE void look_up_groups(const float* table, const std::uint32_t* index, std::size_t count, unsigned shift,
                                float* sums) {
    constexpr std::size_t kBytes = kVectors * sizeof(Vector), kFloats = sizeof(Vector) / sizeof(float);
    const char* bytes = reinterpret_cast<const char*>(table);
    for (std::size_t i = 0; i < count; ++i, sums += kVectors * kFloats) {
        const Word bits = Word{index[i]} * kBytes >> shift;  // masked, this is an offset in bytes
        Vector acc[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) acc[v] = load<Vector>(sums + v * kFloats);
#pragma GCC unroll 8
        for (std::size_t group = 0; group < kGroups; ++group) {
            const char* entry = bytes + group * kSums * kBytes + (bits >> (4 * group) & (kSums - 1) * kBytes);
            for (std::size_t v = 0; v < kVectors; ++v) acc[v] += load<Vector>(entry + v * sizeof(Vector));
        }
        for (std::size_t v = 0; v < kVectors; ++v) store(sums + v * kFloats, acc[v]);
    }
}

template <class Vector, std::size_t kVectors>
RBNN_INLINE void look_up_vectors(std::size_t groups, const float* table, const std::uint32_t* index, std::size_t count,
                                 float* sums) {
    switch (groups) {
        case 8: return look_up_groups<Vector, kVectors, 8>(table, index, count, 0, sums);
        case 4: return look_up_groups<Vector, kVectors, 4>(table, index, count, 0, sums);
        case 2: return look_up_groups<Vector, kVectors, 2>(table, index, count, 0, sums);
        default:
            for (unsigned group = 0; group < groups; ++group)
                look_up_groups<Vector, kVectors, 1>(table + group * kSums * kVectors * sizeof(Vector) / sizeof(float),
                                                    index, count, 4 * group, sums);
    }
}

void look_up_subsets(std::size_t outputs, std::size_t groups, const float* table, const std::uint32_t* index,
                     std::size_t count, float* sums) {
    switch (outputs) {
        case 32: return look_up_vectors<Floats, 4>(groups, table, index, count, sums);
        case 16: return look_up_vectors<Floats, 2>(groups, table, index, count, sums);
        default: return look_up_vectors<Floats, 1>(groups, table, index, count, sums);
    }
}
