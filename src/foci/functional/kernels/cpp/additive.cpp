// Additive scores, vᵀ tanh(q_i + k_j), without the B×L×S×A tensor: forward and backward.
// additive_entries.h has the entries.
//
// Plain C interface, float32, strides in elements. The compiler's vector types cover AVX2, AVX-512 and NEON.
// No -ffast-math: NaN must stay NaN. Every number is summed in an order that does not depend on the number of
// threads. (Gradients at wild rows may still differ in the last bits: the number of threads decides which of
// their entries share a task, and a whole task is either fast or exact.)

#include <algorithm>
#include <cstdint>

#include "additive_entries.h"
#include "threads.h"

namespace {

constexpr int64_t ROWS = 128;   // queries prepared at a time
constexpr int64_t SLICE = 512;  // entries of a, at most, that one task of the backward takes
constexpr int64_t KEYS = 64;    // keys prepared at a time: they stay in the second-level cache

// Rows of q or k, and the first `entries` of each.
struct Rows {
    const float* at;
    int64_t stride, count, entries;

    bool prepare_into(float* to, int64_t width) const {
        bool wild = false;
        for (int64_t i = 0; i < count; i++) wild |= prepare(at + i * stride, entries, to + i * width, padded(entries));
        return wild;
    }

    void copy_into(float* to, int64_t width) const {
        for (int64_t i = 0; i < count; i++) {
            std::copy_n(at + i * stride, entries, to + i * width);
            std::fill_n(to + i * width + entries, padded(entries) - entries, 0.0f);
        }
    }
};

// to[i, a] = 4·v[a]·from[i, a], added to what is there unless it is the first part; `from` becomes 0.
void move_rows(float* from, int64_t width, const Rows& like, const float* v, bool first, float* to, int64_t A) {
    for (int64_t i = 0; i < like.count; i++)
        for (int64_t a = 0; a < like.entries; a += LANES) {
            const int64_t here = like.entries - a;
            const Vector part = all(4.0f) * load_some(v + a, here) * load(from + i * width + a);
            store_some(to + i * A + a, first ? part : part + load_some(to + i * A + a, here), here);
            store(from + i * width + a, Vector{});
        }
}

// Entries of a that one task of the backward takes: fewer where more tasks are wanted.
int64_t slice_size(int64_t B, int64_t A, int threads) {
    int64_t slice = std::clamp(padded(A), CACHE_LINE, SLICE);
    while (slice > CACHE_LINE && B * ((A + slice - 1) / slice) < 2 * threads) slice = padded(slice / 2);
    return slice;
}

int64_t forward_scratch(int64_t L, int64_t S, int64_t A) {
    return (std::min(L, ROWS) + std::min(S, KEYS) + 1) * row_width(A);
}

int64_t backward_scratch(int64_t L, int64_t slice) { return (2 * (std::min(L, ROWS) + TILE) + 1) * row_width(slice); }

}  // namespace

extern "C" {

// Floats of scratch that the forward and the backward need.
int64_t foci_additive_forward_scratch(int64_t L, int64_t S, int64_t A, int threads) {
    return threads * forward_scratch(L, S, A);
}
int64_t foci_additive_backward_scratch(int64_t B, int64_t L, int64_t A, int threads) {
    return threads * backward_scratch(L, slice_size(B, A, threads)) + B * A;
}

// rows (B, S, width): e^{2·key}, padded with zeros, and then a 1 if the row is wild, else a 0.
void foci_additive_prepare(const float* key, int64_t key_batch, int64_t key_row, int64_t B, int64_t S, int64_t A,
                           float* rows, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < B * S; n++)
        prepare_row(key + n / S * key_batch + n % S * key_row, A, rows + n * row_width(A));
}

// scores (B, L, S) of query (B, L, A) and key (B, S, A). key_rows, the keys' prepared rows, may be null.
void foci_additive_forward(const float* query, int64_t query_batch, int64_t query_row, const float* key,
                           int64_t key_batch, int64_t key_row, const float* key_rows, int64_t key_rows_batch,
                           const float* vector, int64_t B, int64_t L, int64_t S, int64_t A, float* scratch,
                           float* scores, int threads) {
    const int64_t width = row_width(A);
    double sum_v = 0;
    for (int64_t a = 0; a < A; a++) sum_v += vector[a];

    // Enough tasks for every thread, but not so many that keys are prepared many times.
    const int64_t share = (B * L + 4 * threads - 1) / (4 * threads);
    const int64_t block = std::min(ROWS, std::max(ROWS / 8, share));
    const int64_t blocks = (L + block - 1) / block;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < B * blocks; n++) {
        const int64_t b = n / blocks, first = n % blocks * block, count = std::min(block, L - first);
        const float* q = query + b * query_batch + first * query_row;
        const float* k = key + b * key_batch;
        float* s = scores + (b * L + first) * S;
        float* x = scratch + this_thread() * forward_scratch(L, S, A);
        float* v = x + std::min(L, ROWS) * width;
        float* own_rows = v + width;
        std::fill_n(v, width, 0.0f);
        std::copy_n(vector, A, v);
        for (int64_t i = 0; i < count; i++) prepare_row(q + i * query_row, A, x + i * width);

        for (int64_t j0 = 0; j0 < S; j0 += KEYS) {
            const int64_t j1 = std::min(S, j0 + KEYS);
            const float* y = own_rows;
            if (key_rows)
                y = key_rows + b * key_rows_batch + j0 * width;
            else
                for (int64_t j = j0; j < j1; j++) prepare_row(k + j * key_row, A, own_rows + (j - j0) * width);
            const bool wild_keys = any_wild(y, j1 - j0, A);
            for (int64_t j = j0; j < j1; j += TILE)
                for (int64_t i = 0; i < count; i++) {
                    const int64_t keys = std::min(TILE, j1 - j);
                    float* sums = s + i * S + j;
                    if (wild_keys || any_wild(x + i * width, 1, A))
                        for (int64_t t = 0; t < keys; t++)
                            sums[t] = exact_score(q + i * query_row, k + (j + t) * key_row, v, A);
                    else
                        score_keys(x + i * width, Keys{y + (j - j0) * width, width}, keys, v, padded(A), sums);
                }
        }
        for (int64_t c = 0; c < count * S; c++) s[c] = static_cast<float>(sum_v - 2.0 * s[c]);
    }
}

// The gradients of Σ grad·scores: dq (B, L, A), dk (B, S, A), dv (A). key_rows may be null.
void foci_additive_backward(const float* grad, const float* query, int64_t query_batch, int64_t query_row,
                            const float* key, int64_t key_batch, int64_t key_row, const float* key_rows,
                            int64_t key_rows_batch, const float* vector, int64_t B, int64_t L, int64_t S, int64_t A,
                            float* scratch, float* dq, float* dk, float* dv, int threads) {
    const int64_t slice = slice_size(B, A, threads), slices = (A + slice - 1) / slice, width = row_width(slice);
    float* dvs = scratch + threads * backward_scratch(L, slice);  // dv of every batch
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < B * slices; n++) {
        const int64_t b = n / slices, a = n % slices * slice, entries = std::min(slice, A - a);
        float* x = scratch + this_thread() * backward_scratch(L, slice);
        float* dx = x + std::min(L, ROWS) * width;
        float* own_rows = dx + std::min(L, ROWS) * width;
        float* dy = own_rows + TILE * width;
        float* dv_part = dy + TILE * width;
        std::fill_n(dx, std::min(L, ROWS) * width, 0.0f);
        std::fill_n(dy, (TILE + 1) * width, 0.0f);
        float* dv_b = dvs + b * A + a;
        std::fill_n(dv_b, entries, 0.0f);

        // Parts of ROWS queries and KEYS keys are summed separately first: long sums then lose less to rounding.
        for (int64_t i = 0; i < L; i += ROWS) {
            const Rows q{query + b * query_batch + i * query_row + a, query_row, std::min(ROWS, L - i), entries};
            const bool wild_queries = q.prepare_into(x, width);
            bool exact = false;
            for (int64_t j = 0; j < S; j += TILE) {
                const Rows k{key + b * key_batch + j * key_row + a, key_row, std::min(TILE, S - j), entries};
                const float* y = own_rows;
                int64_t y_row = width;
                bool wild = wild_queries;
                if (key_rows) {
                    y_row = row_width(A);
                    y = key_rows + b * key_rows_batch + j * y_row + a;
                    wild |= any_wild(y - a, k.count, A);
                } else {
                    wild |= k.prepare_into(own_rows, width);
                }
                if (wild != exact) {
                    exact = wild;
                    if (exact)
                        q.copy_into(x, width);
                    else
                        q.prepare_into(x, width);
                }
                if (exact) {
                    k.copy_into(own_rows, width);
                    y = own_rows;
                    y_row = width;
                }
                const auto add = exact ? gradient_rows<true> : gradient_rows<false>;
                add(grad + (b * L + i) * S + j, q.count, k.count, S, x, Keys{y, y_row}, width, padded(entries), dx,
                    KeyGrads{dy, width}, dv_part);
                move_rows(dy, width, k, vector + a, i == 0, dk + (b * S + j) * A + a, A);
                if (j % KEYS + TILE == KEYS || j + TILE >= S) {
                    move_rows(dx, width, q, vector + a, j < KEYS, dq + (b * L + i) * A + a, A);
                    for (int64_t e = 0; e < entries; e++) dv_b[e] -= 2 * dv_part[e];
                    std::fill_n(dv_part, width, 0.0f);
                }
            }
        }
    }
    for (int64_t a = 0; a < A; a++) dv[a] = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t a = 0; a < A; a++) dv[a] += dvs[b * A + a];
}

}  // extern "C"
