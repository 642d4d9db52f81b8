// The entries of additive scores, vᵀ tanh(q_i + k_j), forward and backward.
//
//     tanh(a + b) = 1 − 2r,    r = 1 / (1 + e^{2a}·e^{2b}),    tanh' = 1 − tanh² = 4 (r − r²)
//
// The exponentials are taken once per query and once per key ("prepared" rows);
// an entry then costs a multiply-add and a reciprocal, and the forward shares one reciprocal among four entries.
// A row with a number beyond ±LIMIT (or NaN) is "wild": its exponential would overflow float32. Its entries use
// the exponential of the sum q + k instead, so that large terms of opposite sign cancel exactly.

#pragma once

#include <algorithm>
#include <cstdint>

#include "floats.h"

namespace {

constexpr int64_t CACHE_LINE = 16;    // prepared rows are padded to whole cache lines
constexpr float LIMIT = 40.0f;        // e^{2·40} = 5.5e34 and its inverse are normal float32 numbers
constexpr float SATURATED = 0x1p30f;  // beyond it tanh is 1 in float32; four of them multiply without overflow
constexpr float FAR = 0x1p120f;       // beyond it a gradient is 0
constexpr int64_t TILE = 8;           // keys that one query is scored against at a time

// 1 / (1 + e^{2(a+b)}) of the sum itself, for wild rows; NaN stays NaN.
Vector exact_reciprocal(Vector a, Vector b) {
    Vector x = a + b;
    x = x > all(15.0f) ? all(15.0f) : x;  // tanh is ±1 long before
    x = x < all(-15.0f) ? all(-15.0f) : x;
    return reciprocal(all(1.0f) + exponential(x + x));
}

// 1 + x·y, no more than `most`. Positive floats are ordered like their bits, and the integer minimum is one instruction.
Vector denominator(Vector x, Vector y, float most = SATURATED) {
    const Integers d = (Integers)(all(1.0f) + x * y), limit = (Integers)all(most);
    return (Vector)(d < limit ? d : limit);
}

int64_t padded(int64_t A) { return round_up<CACHE_LINE>(A); }
int64_t row_width(int64_t A) { return padded(A) + CACHE_LINE; }  // the last line marks wild rows

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
    std::fill_n(row + padded(A), CACHE_LINE, 0.0f);
    if (prepare(from, A, row, padded(A))) row[padded(A)] = 1.0f;
}

// Where rows lie: vector a of row j begins at `at + j·row + a·step`. Rows one after the other have step 1. Tiles have the
// first vectors of TILE rows side by side, then the second ones, and so on: one row's are LANES apart, its step is TILE.
template <typename Real>
struct Layout {
    Real* at;
    int64_t row, step = 1;
    Real* operator()(int64_t j, int64_t a) const { return at + j * row + a * step; }
    Layout from(int64_t j) const { return {at + j * row, row, step}; }
};
using Keys = Layout<const float>;
using KeyGrads = Layout<float>;

// Σ_a v·r for one query against `count` keys, four vectors of a to one reciprocal:
// v0/d0 + v1/d1 = (v0·d1 + v1·d0) / (d0·d1), twice over.
template <int count>
void score_tile(const float* x, const Keys& y, const float* v, int64_t A, float* sums) {
    Vector total[count];
    for (int j = 0; j < count; j++) total[j] = Vector{};
    int64_t a = 0;
    for (; a + 4 * LANES <= A; a += 4 * LANES) {
        const Vector x0 = load(x + a), x1 = load(x + a + LANES);
        const Vector x2 = load(x + a + 2 * LANES), x3 = load(x + a + 3 * LANES);
        const Vector v0 = load(v + a), v1 = load(v + a + LANES);
        const Vector v2 = load(v + a + 2 * LANES), v3 = load(v + a + 3 * LANES);
        for (int j = 0; j < count; j++) {
            const Vector d0 = denominator(x0, load(y(j, a))), d1 = denominator(x1, load(y(j, a + LANES)));
            const Vector d2 = denominator(x2, load(y(j, a + 2 * LANES))), d3 = denominator(x3, load(y(j, a + 3 * LANES)));
            const Vector n01 = v0 * d1 + v1 * d0, n23 = v2 * d3 + v3 * d2;
            const Vector d01 = d0 * d1, d23 = d2 * d3;
            total[j] += (n01 * d23 + n23 * d01) * reciprocal(d01 * d23);
        }
    }
    for (; a < A; a += LANES)
        for (int j = 0; j < count; j++)
            total[j] += load(v + a) * reciprocal(denominator(load(x + a), load(y(j, a))));
    if constexpr (count == EACH)
        sum_each(total, sums);
    else
        for (int j = 0; j < count; j++) sums[j] = sum_lanes<float>(total[j]);
}

void score_keys(const float* x, const Keys& y, int64_t count, const float* v, int64_t A, float* sums) {
    if (count == TILE) return score_tile<TILE>(x, y, v, A, sums);
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) score_tile<2>(x, y.from(j), v, A, sums + j);
    if (j < count) score_tile<1>(x, y.from(j), v, A, sums + j);
}

float exact_score(const float* q, const float* k, const float* v, int64_t A) {
    Vector total{};
    for (int64_t a = 0; a < A; a += LANES)
        total += load(v + a) * exact_reciprocal(load_some(q + a, A - a), load_some(k + a, A - a));
    return sum_lanes<float>(total);
}

bool any_wild(const float* prepared, int64_t rows, int64_t A) {
    for (int64_t i = 0; i < rows; i++)
        if (prepared[i * row_width(A) + padded(A)] != 0) return true;
    return false;
}

// The entries of a few queries and a few keys over A numbers. It adds Σ g·(r − ½) to dv and Σ g·(r − r²) to dq and
// dk: they are still to be multiplied, dv by −2 and the others by 4·v.
template <int queries, int keys, bool exact>
void gradient_tile(const float* g, int64_t S, const float* x, const Keys& y, int64_t width, int64_t A, float* dq,
                   const KeyGrads& dk, float* dv) {
    float sum_g = 0;
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < keys; j++) sum_g += g[i * S + j];
    const Vector offset = all(-0.5f * sum_g);  // the ½ of all entries at once: small sums stay precise
    for (int64_t a = 0; a < A; a += LANES) {
        Vector xs[queries], dqs[queries], sum = offset;
        for (int i = 0; i < queries; i++) {
            xs[i] = load(x + i * width + a);
            dqs[i] = load(dq + i * width + a);
        }
        for (int j = 0; j < keys; j++) {
            const Vector yj = load(y(j, a));
            Vector dkj = load(dk(j, a));
            for (int i = 0; i < queries; i++) {
                const Vector r = exact ? exact_reciprocal(xs[i], yj) : reciprocal(denominator(xs[i], yj, FAR));
                const Vector m = all(g[i * S + j]) * r;
                const Vector h = m - m * r;
                sum += m;
                dqs[i] += h;
                dkj += h;
            }
            store(dk(j, a), dkj);
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
template <int queries, int keys, bool exact>
void gradient_keys(const float* g, int64_t count, int64_t S, const float* x, const Keys& y, int64_t width, int64_t A,
                   float* dq, const KeyGrads& dk, float* dv) {
    int64_t j = 0;
    for (; j + keys <= count; j += keys)
        if (any_gradient<queries, keys>(g + j, S))
            gradient_tile<queries, keys, exact>(g + j, S, x, y.from(j), width, A, dq, dk.from(j), dv);
    if constexpr (keys > 1)
        if (j < count)
            gradient_keys<queries, keys == TILE ? 4 : 1, exact>(g + j, count - j, S, x, y.from(j), width, A, dq,
                                                                dk.from(j), dv);
}

template <bool exact>
void gradient_rows(const float* g, int64_t queries, int64_t keys, int64_t S, const float* x, const Keys& y,
                   int64_t width, int64_t A, float* dq, const KeyGrads& dk, float* dv) {
    int64_t i = 0;
    for (; i + 2 <= queries; i += 2)
        gradient_keys<2, 4, exact>(g + i * S, keys, S, x + i * width, y, width, A, dq + i * width, dk, dv);
    if (i < queries)
        gradient_keys<1, TILE, exact>(g + i * S, keys, S, x + i * width, y, width, A, dq + i * width, dk, dv);
}

}  // namespace
