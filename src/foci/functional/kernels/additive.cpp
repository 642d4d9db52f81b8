// Additive scores, vᵀ tanh(q_i + k_j), without the B×L×S×A tensor: forward and backward.
//
//     tanh(a + b) = 1 − 2r,    r = 1 / (1 + e^{2a}·e^{2b}),    tanh' = 1 − tanh² = 4 (r − r²)
//
// The exponentials are taken once per query and once per key ("prepared" rows, see foci_additive_prepare);
// a cell then costs a multiply-add and a division, and the forward shares one division among four cells.
// A row with an entry beyond ±LIMIT (or NaN) is "wild": its exponential would overflow float32. Its cells use
// the exponential of the sum q + k instead, so that large terms of opposite sign cancel exactly.
//
// Plain C interface, float32, strides in elements. The compiler's vector types cover AVX2, AVX-512 and NEON.
// No -ffast-math: NaN must stay NaN. Every number is summed in an order that does not depend on the number of
// threads. (Gradients at wild rows may still differ in the last bits: the number of threads decides which of
// their entries share a task, and a whole task is either fast or exact.)

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "floats.h"
#include "threads.h"

namespace {

constexpr int64_t CELL = 16;          // prepared rows are padded to whole cache lines
constexpr float LIMIT = 40.0f;        // e^{2·40} = 5.5e34 and its inverse are normal float32 numbers
constexpr float SATURATED = 0x1p30f;  // beyond it tanh is 1 in float32; four of them multiply without overflow
constexpr int64_t TILE = 8;           // keys that one query is scored against at a time
constexpr int64_t ROWS = 128;         // queries prepared at a time
constexpr int64_t SLICE = 512;        // entries of a, at most, that one task of the backward takes
constexpr int64_t KEYS = 64;          // keys prepared at a time: they stay in the second-level cache

void store(float* to, Vector x) { std::memcpy(to, &x, sizeof x); }

Vector load_some(const float* from, int64_t count) {  // the lanes past `count` are 0
    if (count >= LANES) return load(from);
    Vector x{};
    std::memcpy(&x, from, count * sizeof(float));
    return x;
}

void store_some(float* to, Vector x, int64_t count) {
    if (count >= LANES) return store(to, x);
    std::memcpy(to, &x, count * sizeof(float));
}

float sum_lanes(Vector x) {
    float sums[LANES];
    store(sums, x);
    for (int64_t width = LANES / 2; width; width /= 2)
        for (int64_t l = 0; l < width; l++) sums[l] += sums[l + width];
    return sums[0];
}

// 1 / (1 + e^{2(a+b)}) of the sum itself, for wild rows; NaN stays NaN.
Vector exact_reciprocal(Vector a, Vector b) {
    Vector x = a + b;
    x = x > all(15.0f) ? all(15.0f) : x;  // tanh is ±1 long before
    x = x < all(-15.0f) ? all(-15.0f) : x;
    return all(1.0f) / (all(1.0f) + exponential(x + x));
}

// 1 + x·y, no more than SATURATED. Positive floats are ordered like their bits, and the integer minimum is one instruction.
Vector denominator(Vector x, Vector y) {
    const Integers d = (Integers)(all(1.0f) + x * y);
    const Integers most = (Integers)all(SATURATED);
    return (Vector)(d < most ? d : most);
}

int64_t padded(int64_t A) { return (A + CELL - 1) / CELL * CELL; }
int64_t row_width(int64_t A) { return padded(A) + CELL; }  // the last cell marks wild rows

// e^{2x} for `count` entries, then zeros; returns whether an entry is wild.
bool prepare(const float* from, int64_t count, float* to, int64_t width) {
    Integers tame = ~Integers{};
    const auto step = [&](Vector x) {
        tame &= (x <= all(LIMIT)) & (x >= all(-LIMIT));  // NaN is not tame, either
        return exponential(x + x);
    };
    int64_t a = 0;
    for (; a + LANES <= count; a += LANES) store(to + a, step(load(from + a)));
    std::fill_n(to + a, width - a, 0.0f);
    if (a < count) store_some(to + a, step(load_some(from + a, count - a)), count - a);
    int32_t all_tame = -1;
    for (int64_t l = 0; l < LANES; l++) all_tame &= tame[l];
    return !all_tame;
}

void prepare_row(const float* from, int64_t A, float* row) {
    std::fill_n(row + padded(A), CELL, 0.0f);
    if (prepare(from, A, row, padded(A))) row[padded(A)] = 1.0f;
}

// Σ_a v·r for one query against `count` keys, four vectors of a to one division:
// v0/d0 + v1/d1 = (v0·d1 + v1·d0) / (d0·d1), twice over.
template <int count>
void score_tile(const float* x, const float* y, int64_t width, const float* v, int64_t A, float* sums) {
    Vector total[count];
    for (int j = 0; j < count; j++) total[j] = Vector{};
    int64_t a = 0;
    for (; a + 4 * LANES <= A; a += 4 * LANES) {
        const Vector x0 = load(x + a), x1 = load(x + a + LANES);
        const Vector x2 = load(x + a + 2 * LANES), x3 = load(x + a + 3 * LANES);
        const Vector v0 = load(v + a), v1 = load(v + a + LANES);
        const Vector v2 = load(v + a + 2 * LANES), v3 = load(v + a + 3 * LANES);
        for (int j = 0; j < count; j++) {
            const float* yj = y + j * width + a;
            const Vector d0 = denominator(x0, load(yj)), d1 = denominator(x1, load(yj + LANES));
            const Vector d2 = denominator(x2, load(yj + 2 * LANES)), d3 = denominator(x3, load(yj + 3 * LANES));
            const Vector n01 = v0 * d1 + v1 * d0, n23 = v2 * d3 + v3 * d2;
            const Vector d01 = d0 * d1, d23 = d2 * d3;
            total[j] += (n01 * d23 + n23 * d01) / (d01 * d23);
        }
    }
    for (; a < A; a += LANES)
        for (int j = 0; j < count; j++)
            total[j] += load(v + a) / denominator(load(x + a), load(y + j * width + a));
    for (int j = 0; j < count; j++) sums[j] = sum_lanes(total[j]);
}

void score_keys(const float* x, const float* y, int64_t count, int64_t width, const float* v, int64_t A, float* sums) {
    if (count == TILE) return score_tile<TILE>(x, y, width, v, A, sums);
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) score_tile<2>(x, y + j * width, width, v, A, sums + j);
    if (j < count) score_tile<1>(x, y + j * width, width, v, A, sums + j);
}

float exact_score(const float* q, const float* k, const float* v, int64_t A) {
    Vector total{};
    for (int64_t a = 0; a < A; a += LANES)
        total += load(v + a) * exact_reciprocal(load_some(q + a, A - a), load_some(k + a, A - a));
    return sum_lanes(total);
}

bool any_wild(const float* prepared, int64_t rows, int64_t A) {
    for (int64_t i = 0; i < rows; i++)
        if (prepared[i * row_width(A) + padded(A)] != 0) return true;
    return false;
}

// The cells of a few queries and a few keys over A entries. It adds Σ g·(r − ½) to dv and Σ g·(r − r²) to dq and
// dk: they are still to be multiplied, dv by −2 and the others by 4·v.
template <int queries, int keys, bool exact>
void gradient_tile(const float* g, int64_t S, const float* x, const float* y, int64_t y_row, int64_t width, int64_t A,
                   float* dq, float* dk, float* dv) {
    float sum_g = 0;
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < keys; j++) sum_g += g[i * S + j];
    const Vector offset = all(-0.5f * sum_g);  // the ½ of all cells at once: small sums stay precise
    for (int64_t a = 0; a < A; a += LANES) {
        Vector xs[queries], dqs[queries], sum = offset;
        for (int i = 0; i < queries; i++) {
            xs[i] = load(x + i * width + a);
            dqs[i] = load(dq + i * width + a);
        }
        for (int j = 0; j < keys; j++) {
            const Vector yj = load(y + j * y_row + a);
            Vector dkj = load(dk + j * width + a);
            for (int i = 0; i < queries; i++) {
                const Vector r = exact ? exact_reciprocal(xs[i], yj) : all(1.0f) / (all(1.0f) + xs[i] * yj);
                const Vector m = all(g[i * S + j]) * r;
                const Vector h = m - m * r;
                sum += m;
                dqs[i] += h;
                dkj += h;
            }
            store(dk + j * width + a, dkj);
        }
        for (int i = 0; i < queries; i++) store(dq + i * width + a, dqs[i]);
        store(dv + a, load(dv + a) + sum);
    }
}

template <int queries, int keys>
bool any_gradient(const float* g, int64_t S) {
    bool any = false;
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < keys; j++) any |= g[i * S + j] != 0;
    return any;
}

// Tiles without a gradient, for example masked ones, are skipped.
template <int queries, bool exact>
void gradient_keys(const float* g, int64_t count, int64_t S, const float* x, const float* y, int64_t y_row,
                   int64_t width, int64_t A, float* dq, float* dk, float* dv) {
    int64_t j = 0;
    for (; j + 4 <= count; j += 4)
        if (any_gradient<queries, 4>(g + j, S))
            gradient_tile<queries, 4, exact>(g + j, S, x, y + j * y_row, y_row, width, A, dq, dk + j * width, dv);
    for (; j < count; j++)
        if (any_gradient<queries, 1>(g + j, S))
            gradient_tile<queries, 1, exact>(g + j, S, x, y + j * y_row, y_row, width, A, dq, dk + j * width, dv);
}

template <bool exact>
void gradient_rows(const float* g, int64_t queries, int64_t keys, int64_t S, const float* x, const float* y,
                   int64_t y_row, int64_t width, int64_t A, float* dq, float* dk, float* dv) {
    int64_t i = 0;
    for (; i + 2 <= queries; i += 2)
        gradient_keys<2, exact>(g + i * S, keys, S, x + i * width, y, y_row, width, A, dq + i * width, dk, dv);
    if (i < queries)
        gradient_keys<1, exact>(g + i * S, keys, S, x + i * width, y, y_row, width, A, dq + i * width, dk, dv);
}

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
    int64_t slice = std::clamp(padded(A), CELL, SLICE);
    while (slice > CELL && B * ((A + slice - 1) / slice) < 2 * threads) slice = padded(slice / 2);
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
                        score_keys(x + i * width, y + (j - j0) * width, keys, width, v, padded(A), sums);
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
                add(grad + (b * L + i) * S + j, q.count, k.count, S, x, y, y_row, width, padded(entries), dx, dy, dv_part);
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
