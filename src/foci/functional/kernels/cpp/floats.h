// Vectors of float32, their exponential, reciprocal and sums, for the kernels that compute in float32 only.

#pragma once

#include <cstdint>
#include <utility>

#include "vectors.h"

#define UNROLL _Pragma("GCC unroll 16")  // arrays of vectors stay in registers only where loops over them are unrolled

namespace {

constexpr int64_t LANES = LANES_OF<float>;
using Vector = VectorOf<float>;
using Integers = VectorOf<int32_t>;

// e^x to about one unit in the last place, for |x| ≤ 87: the result is a normal number.
Vector exponential(Vector x) {
    const Vector shift = all(0x1.8p23f);  // adding it rounds to a whole number, kept in the low bits
    const Vector shifted = x * all(1.44269504f) + shift;
    const Vector n = shifted - shift;
    const Vector f = (x - n * all(0.693359375f)) + n * all(2.12194440e-4f);  // x − n·ln 2, ln 2 in two parts
    Vector p = all(1.0f / 5040);
    p = p * f + all(1.0f / 720);
    p = p * f + all(1.0f / 120);
    p = p * f + all(1.0f / 24);
    p = p * f + all(1.0f / 6);
    p = p * f + all(0.5f);
    p = p * f + all(1.0f);
    p = p * f + all(1.0f);
    return (Vector)((Integers)p + ((Integers)shifted << 23));
}

// 1 / x to about one unit in the last place, for normal x below 2^126 (and NaN for infinity, unless it is a division).
Vector reciprocal(Vector x) {
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    const Vector r = (Vector)_mm512_rcp14_ps((__m512)x);  // 14 bits, doubled by a step of Newton: a division takes longer
    return r + r * (all(1.0f) - x * r);
#else
    return all(1.0f) / x;
#endif
}

constexpr float TANH_SCALE = 2 * 1.44269504f;  // 2 / ln 2: e^{2x} = 2^{x · TANH_SCALE}

// y becomes 1 + 2^y, for y above 60 as for 60, whose reciprocal counts for nothing; NaN stays NaN. Each step is taken
// for all vectors before the next, so that none waits for the one before it.
template <int N>
__attribute__((always_inline)) inline void one_plus_powers(Vector* y) {
    Vector n[N], p[N];
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    UNROLL for (int i = 0; i < N; i++) y[i] = (Vector)_mm512_min_ps((__m512)all(60.0f), (__m512)y[i]);
    UNROLL for (int i = 0; i < N; i++)
        n[i] = (Vector)_mm512_roundscale_ps((__m512)y[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    UNROLL for (int i = 0; i < N; i++) y[i] -= n[i];
#else
    Vector shifted[N];
    UNROLL for (int i = 0; i < N; i++) {
        y[i] = y[i] > all(60.0f) ? all(60.0f) : y[i];
        y[i] = y[i] < all(-60.0f) ? all(-60.0f) : y[i];
        shifted[i] = y[i] + all(0x1.8p23f);
        n[i] = shifted[i] - all(0x1.8p23f);
        y[i] -= n[i];
    }
#endif
    // 2^y within 1e-7 of it, and exact at 0, for −½ ≤ y ≤ ½.
    UNROLL for (int i = 0; i < N; i++) p[i] = all(1.326472727e-3f) * y[i] + all(9.671512733e-3f);
    UNROLL for (int i = 0; i < N; i++) p[i] = p[i] * y[i] + all(5.550733744e-2f);
    UNROLL for (int i = 0; i < N; i++) p[i] = p[i] * y[i] + all(2.402224208e-1f);
    UNROLL for (int i = 0; i < N; i++) p[i] = p[i] * y[i] + all(6.931469776e-1f);
    UNROLL for (int i = 0; i < N; i++) p[i] = p[i] * y[i] + all(1.0f);
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    UNROLL for (int i = 0; i < N; i++) y[i] = all(1.0f) + (Vector)_mm512_scalef_ps((__m512)p[i], (__m512)n[i]);
#else
    UNROLL for (int i = 0; i < N; i++) y[i] = all(1.0f) + (Vector)((Integers)p[i] + ((Integers)shifted[i] << 23));
#endif
}

constexpr int EACH = 8;  // vectors that sum_each sums at a time

#if defined(__clang__) || __GNUC__ >= 12
template <typename Pick, std::size_t... i>
Vector shuffle(Vector a, Vector b, Pick, std::index_sequence<i...>) {
    return __builtin_shufflevector(a, b, Pick::of(i)...);
}

// In each group of 2·width lanes: one half of a's group, then the same half of b's.
template <int width, int half>
struct Halves {
    static constexpr int of(int i) {
        return i / (2 * width) * (2 * width) + half * width + i % width + (i % (2 * width) < width ? 0 : int(LANES));
    }
};

struct Even {
    static constexpr int of(int i) { return 2 * i % int(LANES); }
};

// In each group of 2·width lanes: the sum of the halves of a's group, then that of b's.
template <int width>
Vector fold(Vector a, Vector b) {
    const std::make_index_sequence<LANES> lanes;
    return shuffle(a, b, Halves<width, 0>{}, lanes) + shuffle(a, b, Halves<width, 1>{}, lanes);
}

// The sums of the lanes of eight vectors, by three shuffles and additions each instead of a tree for each.
void sum_each(const Vector (&x)[EACH], float* sums) {
    constexpr int half = LANES / 2;
    const Vector even = fold<half / 2>(fold<half>(x[0], x[4]), fold<half>(x[2], x[6]));
    const Vector odd = fold<half / 2>(fold<half>(x[1], x[5]), fold<half>(x[3], x[7]));
    Vector found = fold<half / 4>(even, odd);
    if constexpr (LANES == 16) {
        found = fold<1>(found, found);
        found = shuffle(found, found, Even{}, std::make_index_sequence<LANES>());
    }
    store_some(sums, found, EACH);
}
#else
void sum_each(const Vector (&x)[EACH], float* sums) {
    for (int i = 0; i < EACH; i++) sums[i] = sum_lanes<float>(x[i]);
}
#endif

}  // namespace
