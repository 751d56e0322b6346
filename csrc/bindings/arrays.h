// The arrays that Python hands to the training kernels, and their checks.
#pragma once
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <stdexcept>

#include "simd/kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rbnn {

template <class T>
using Values = nb::ndarray<T, nb::device::cpu>;  // images × values, in any memory order
template <class T>
using Pictures = nb::ndarray<T, nb::ndim<4>, nb::device::cpu>;
template <class T>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Numbers = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using In = Values<const float>;
using Out = Values<float>;
using PicturesIn = Pictures<const float>;
using PicturesOut = Pictures<float>;
using Pair = std::pair<std::size_t, std::size_t>;

// An array is used as it is or refused: a result written to a converted copy would be lost.
inline auto array(const char* name) { return nb::arg(name).noconvert(); }
inline auto maybe(const char* name) { return nb::arg(name).noconvert().none(); }

// A mistake of the caller in Python, not of the user: ValueError.
inline void expect(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

template <class Array>
auto data_or_null(const Array& array) {
    return array.is_valid() && array.size() > 0 ? array.data() : nullptr;
}

// Whether an array is dense in memory, with the channels directly after the first dimension, or last.
template <class Array>
bool dense(const Array& a, bool channels_last) {
    if (a.size() == 0) return true;
    std::int64_t expected = 1;
    const auto next = [&](std::size_t i) {
        const bool fits = a.shape(i) == 1 || a.stride(i) == expected;
        expected *= static_cast<std::int64_t>(a.shape(i));
        return fits;
    };
    bool fits = !channels_last || next(1);
    for (std::size_t i = a.ndim(); i-- > (channels_last ? 2 : 1);) fits = next(i) && fits;
    return next(0) && fits;
}

template <class First, class Other>
bool same_layout(const First& first, const Other& other) {
    bool same = first.ndim() == other.ndim();
    for (std::size_t i = 0; same && i < first.ndim(); ++i)
        same = first.shape(i) == other.shape(i) && (first.shape(i) == 1 || first.stride(i) == other.stride(i));
    return same;
}

template <class First, class... Others>
void same_shape(const First& first, const Others&... others) {
    expect((same_layout(first, others) && ...), "arrays of one call must have one shape and order");
}

template <class... Arrays>
void channels_last(const Arrays&... arrays) {
    expect((dense(arrays, true) && ...), "expected pictures with the channels last in memory");
}

// A tent from its four numbers.
inline Tent tent_of(const Numbers<const double>& numbers) {
    expect(numbers.size() == 4, "a tent has four numbers");
    const auto number = [&](std::size_t i) { return static_cast<float>(numbers.data()[i]); };
    return {number(0), number(1), number(2), number(3)};
}

}  // namespace rbnn
