// Vectors of float32, their exponential, reciprocal and sums, for the kernels that compute in float32 only.

#pragma once

#include <cstdint>
#include <utility>

#include "vectors.h"

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

// 1 / (1 + e^{2x}) = (1 − tanh x) / 2 within 1e-7, for every x; NaN stays NaN.
Vector half_tanh(Vector x) {
    constexpr float FROM = 2 * 1.44269504f;  // 2 / ln 2
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    const Vector y = (Vector)_mm512_min_ps((__m512)all(60.0f), (__m512)(x * all(FROM)));  // 2^−60 counts for nothing
    const Vector n = (Vector)_mm512_roundscale_ps((__m512)y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    Vector y = x * all(FROM);
    y = y > all(60.0f) ? all(60.0f) : y;
    y = y < all(-60.0f) ? all(-60.0f) : y;
    const Vector shifted = y + all(0x1.8p23f), n = shifted - all(0x1.8p23f);
#endif
    const Vector f = y - n;  // 2^f by its Taylor series: −½ ≤ f ≤ ½
    Vector p = all(1.5403530e-4f);
    p = p * f + all(1.3333558e-3f);
    p = p * f + all(9.6181291e-3f);
    p = p * f + all(5.5504109e-2f);
    p = p * f + all(2.4022651e-1f);
    p = p * f + all(6.9314718e-1f);
    p = p * f + all(1.0f);
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    return reciprocal(all(1.0f) + (Vector)_mm512_scalef_ps((__m512)p, (__m512)n));
#else
    return reciprocal(all(1.0f) + (Vector)((Integers)p + ((Integers)shifted << 23)));
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
