// Vectors of floats or doubles by the compiler's vector types, which cover AVX2, AVX-512 and NEON.
//
// A file that needs vectors of a fixed size defines VECTOR_BYTES before it includes this.

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#ifndef VECTOR_BYTES
#ifdef __AVX512F__
#define VECTOR_BYTES 64
#else
#define VECTOR_BYTES 32
#endif
#endif

namespace {

template <typename Real>
struct Packed {
    typedef Real Vector __attribute__((vector_size(VECTOR_BYTES)));
};
template <typename Real>
using VectorOf = typename Packed<Real>::Vector;
template <typename Real>
constexpr int64_t LANES_OF = VECTOR_BYTES / sizeof(Real);

template <typename Real>
VectorOf<Real> all(Real x) {
    return x - VectorOf<Real>{};
}

template <typename Real>
VectorOf<Real> load(const Real* from) {
    VectorOf<Real> x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

template <typename Real>
VectorOf<Real> load_some(const Real* from, int64_t count, Real fill = 0) {  // the lanes past `count` are `fill`
    if (count >= LANES_OF<Real>) return load(from);
    VectorOf<Real> x = all(fill);
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    if constexpr (std::is_same_v<Real, float>)  // without a call of memcpy
        return (VectorOf<Real>)_mm512_mask_loadu_ps((__m512)x, __mmask16((1u << count) - 1), from);
#endif
    std::memcpy(&x, from, count * sizeof(Real));
    return x;
}

template <typename Real>
void store(Real* to, VectorOf<Real> x) {
    std::memcpy(to, &x, sizeof x);
}

template <typename Real>
void store_some(Real* to, VectorOf<Real> x, int64_t count) {
    if (count >= LANES_OF<Real>) return store(to, x);
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    if constexpr (std::is_same_v<Real, float>) return _mm512_mask_storeu_ps(to, __mmask16((1u << count) - 1), (__m512)x);
#endif
    std::memcpy(to, &x, count * sizeof(Real));
}

template <typename Real>
Real sum_lanes(VectorOf<Real> x) {
    if constexpr (LANES_OF<Real> == 4) return (x[0] + x[2]) + (x[1] + x[3]);  // without a detour through memory
    Real sums[LANES_OF<Real>];
    store(sums, x);
    for (int64_t width = LANES_OF<Real> / 2; width; width /= 2)
        for (int64_t l = 0; l < width; l++) sums[l] += sums[l + width];
    return sums[0];
}

template <int64_t multiple>
constexpr int64_t round_up(int64_t count) {
    return (count + multiple - 1) / multiple * multiple;
}

}  // namespace
