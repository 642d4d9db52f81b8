// Products of a few rows with a matrix, whose sums stay in registers.
//
// A sum runs over the rows of the matrix in their order, so a row's result does not depend on the others of its block.

#pragma once

#include <algorithm>
#include <cstdint>

#include "floats.h"

namespace {

// Vectors of a row that are summed at a time: with these, the sums of 8, 4, 2 or 1 rows fill most of the registers.
#ifdef __AVX512F__
constexpr int WIDE[] = {0, 8, 8, 0, 6, 0, 0, 0, 3};
#else
constexpr int WIDE[] = {0, 6, 4, 0, 3, 0, 0, 0, 1};
#endif

// to[m] += Σ_k x[m, k] · matrix[k] for M rows and N vectors.
template <int M, int N>
void multiply_tile(const float* x, int64_t x_row, const float* matrix, int64_t matrix_row, int64_t K, float* to,
                   int64_t to_row) {
    Vector sums[M][N];
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) sums[m][n] = load(to + m * to_row + n * LANES);
    for (int64_t k = 0; k < K; k++) {
        Vector row[N];
        for (int n = 0; n < N; n++) row[n] = load(matrix + k * matrix_row + n * LANES);
        for (int m = 0; m < M; m++) {
            const Vector scale = all(x[m * x_row + k]);
            for (int n = 0; n < N; n++) sums[m][n] += scale * row[n];
        }
    }
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) store(to + m * to_row + n * LANES, sums[m][n]);
}

// The last vectors of the rows: `count` of them, at most N.
template <int M, int N>
void multiply_rest(const float* x, int64_t x_row, const float* matrix, int64_t matrix_row, int64_t K, int64_t count,
                   float* to, int64_t to_row) {
    if (count == N) return multiply_tile<M, N>(x, x_row, matrix, matrix_row, K, to, to_row);
    if constexpr (N > 1) multiply_rest<M, N - 1>(x, x_row, matrix, matrix_row, K, count, to, to_row);
}

template <int M>
void multiply_rows(const float* x, int64_t x_row, const float* matrix, int64_t matrix_row, int64_t K, int64_t width,
                   float* to, int64_t to_row) {
    constexpr int N = WIDE[M];
    for (int64_t n = 0; n < width; n += N * LANES)
        multiply_rest<M, N>(x, x_row, matrix + n, matrix_row, K, std::min<int64_t>(N, (width - n) / LANES), to + n, to_row);
}

// to (rows, width) += x (rows, K) · matrix (K, width), M rows at a time; the width is a multiple of LANES.
template <int M = 8>
void multiply(const float* x, int64_t rows, int64_t x_row, const float* matrix, int64_t matrix_row, int64_t K,
              int64_t width, float* to, int64_t to_row) {
    for (; rows >= M; rows -= M, x += M * x_row, to += M * to_row)
        multiply_rows<M>(x, x_row, matrix, matrix_row, K, width, to, to_row);
    if constexpr (M > 1)
        if (rows) multiply<M / 2>(x, rows, x_row, matrix, matrix_row, K, width, to, to_row);
}

}  // namespace
