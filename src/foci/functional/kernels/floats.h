// Vectors of float32, for the kernels that compute in nothing else: AVX2, AVX-512 and NEON alike.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

#ifdef __AVX512F__
constexpr int64_t LANES = 16;
#else
constexpr int64_t LANES = 8;
#endif
typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(LANES * sizeof(float))));

Vector all(float x) { return x - Vector{}; }

Vector load(const float* from) {
    Vector x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

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
