// Vectors of float32 and their exponential, for the kernels that compute in float32 only.

#pragma once

#include <cstdint>

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

}  // namespace
