// Additive scores, vᵀ tanh(q_i + k_j), without the B×L×S×A tensor: forward and backward.
//
//     tanh(a + b) = 1 − 2r,    r = 1 / (1 + e^{2a}·e^{2b}),    tanh' = 1 − tanh² = 4 (r − r²)
//
// The exponentials are taken once per query and once per key ("prepared" rows, see foci_additive_prepare);
// a cell then costs a multiply-add and a division, and the forward shares one division among four cells.
// A row with an entry beyond ±LIMIT (or NaN) is "wild": its exponential would leave float32. Its cells take
// the exponential of the sum q + k instead, so that large terms of opposite sign cancel exactly.
//
// Plain C interface, float32, strides in elements. The compiler's vector types serve AVX2, AVX-512 and NEON
// alike. No -ffast-math: NaN must come out as NaN. Every number is summed in an order that does not depend on
// the number of threads.

#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr int64_t LANES = 16;
#else
constexpr int64_t LANES = 8;
#endif
typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(LANES * sizeof(float))));

constexpr int64_t CELL = 16;          // prepared rows are padded to whole cache lines
constexpr float LIMIT = 40.0f;        // e^{2·40} = 5.5e34 and its inverse are normal float32 numbers
constexpr float SATURATED = 0x1p30f;  // beyond it tanh is 1 in float32; four of them multiply without overflow
constexpr int64_t TILE = 8;           // keys that one query is scored against at a time
constexpr int64_t ROWS = 128;         // queries of one task of the forward, prepared in its own scratch
constexpr int64_t KEYS = 64;          // keys prepared at a time: they stay in the second-level cache

Vector all(float x) { return x - Vector{}; }

Vector load(const float* from) {
    Vector x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

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

// e^x to about one unit in the last place, for |x| ≤ 2·LIMIT.
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
int64_t row_width(int64_t A) { return padded(A) + CELL; }  // the last cell tells whether the row is wild

// e^{2x} for `count` entries, then zeros; returns whether an entry is wild.
bool prepare(const float* from, int64_t count, float* to, int64_t width) {
    Integers wild{};
    for (int64_t a = 0; a < width; a += LANES) {
        const int64_t here = std::min(LANES, count - a);
        if (here <= 0) {
            store(to + a, Vector{});
            continue;
        }
        const Vector x = load_some(from + a, here);
        wild |= ~((x <= all(LIMIT)) & (x >= all(-LIMIT)));  // so NaN is wild, too
        Vector e = exponential(x + x);
        for (int64_t l = here; l < LANES; l++) e[l] = 0;
        store(to + a, e);
    }
    int32_t any = 0;
    for (int64_t l = 0; l < LANES; l++) any |= wild[l];
    return any;
}

void prepare_row(const float* from, int64_t A, float* row) {
    row[padded(A)] = prepare(from, A, row, padded(A)) ? 1.0f : 0.0f;
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

// The backward works on panels: CELL entries of a for every row of q or k, side by side.
constexpr int64_t PARTS = CELL / LANES;
constexpr int64_t GROUP = 4;  // panels at most that a task fills and writes together, to read whole lines of memory

int64_t panel_group(int64_t L, int64_t S) { return std::clamp<int64_t>(512 / (L + S), 1, GROUP); }

// Adds the cells of `count` queries and the keys [j0, j1): with m = g·r, Σ m (for v) and Σ m − m·r (for q and k).
template <int count, bool exact>
void gradient_rows(const float* g, int64_t S, const float* x, const float* y, int64_t j0, int64_t j1, float* dq,
                   float* dk, float* dv) {
    Vector xs[count][PARTS], dqs[count][PARTS], dvs[PARTS];
    for (int p = 0; p < PARTS; p++) {
        dvs[p] = Vector{};
        for (int i = 0; i < count; i++) {
            xs[i][p] = load(x + i * CELL + p * LANES);
            dqs[i][p] = Vector{};
        }
    }
    for (int64_t j = j0; j < j1; j++) {
        for (int p = 0; p < PARTS; p++) {
            const Vector yj = load(y + j * CELL + p * LANES);
            Vector dkj = load(dk + j * CELL + p * LANES);
            for (int i = 0; i < count; i++) {
                const Vector r = exact ? exact_reciprocal(xs[i][p], yj) : all(1.0f) / (all(1.0f) + xs[i][p] * yj);
                const Vector m = all(g[i * S + j]) * r;
                const Vector h = m - m * r;
                dvs[p] += m;
                dqs[i][p] += h;
                dkj += h;
            }
            store(dk + j * CELL + p * LANES, dkj);
        }
    }
    for (int p = 0; p < PARTS; p++) {
        store(dv + p * LANES, load(dv + p * LANES) + dvs[p]);
        for (int i = 0; i < count; i++)
            store(dq + i * CELL + p * LANES, load(dq + i * CELL + p * LANES) + dqs[i][p]);
    }
}

template <bool exact>
void gradient_panel(const float* g, int64_t L, int64_t S, const float* x, const float* y, float* dq, float* dk,
                    float* dv) {
    for (int64_t j = 0; j < S; j += KEYS) {
        const int64_t end = std::min(S, j + KEYS);
        int64_t i = 0;
        for (; i + 2 <= L; i += 2)
            gradient_rows<2, exact>(g + i * S, S, x + i * CELL, y, j, end, dq + i * CELL, dk, dv);
        if (i < L) gradient_rows<1, exact>(g + i * S, S, x + i * CELL, y, j, end, dq + i * CELL, dk, dv);
    }
}

// Rows of q or k (or prepared rows of k) as panels: entries [a, a + entries) of every row, one panel after another.
struct Rows {
    const float* at;
    int64_t stride, count;

    bool prepare_into(float* panels, int64_t a, int64_t entries) const {
        bool wild = false;
        for (int64_t i = 0; i < count; i++)
            for (int64_t e = 0; e < entries; e += CELL)
                wild |= prepare(at + i * stride + a + e, std::min(CELL, entries - e), panel(panels, e, i), CELL);
        return wild;
    }

    void copy_into(float* panels, int64_t a, int64_t entries) const {
        for (int64_t i = 0; i < count; i++)
            for (int64_t e = 0; e < entries; e += CELL)
                for (int64_t l = 0; l < CELL; l += LANES)
                    store(panel(panels, e, i) + l, load_some(at + i * stride + a + e + l, entries - e - l));
    }

    float* panel(float* panels, int64_t e, int64_t i) const { return panels + (e * count) + i * CELL; }
};

// to[i, a] = 4·v[a]·(what the panels hold)
void write_panels(const float* panels, int64_t count, const float* v, int64_t entries, float* to, int64_t stride) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t e = 0; e < entries; e += LANES) {
            const float* from = panels + e / CELL * CELL * count + i * CELL + e % CELL;
            store_some(to + i * stride + e, all(4.0f) * load_some(v + e, entries - e) * load(from), entries - e);
        }
}

int this_thread() {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

}  // namespace

extern "C" {

// Floats in one prepared row of A entries, and in the scratch of one thread.
int64_t foci_additive_width(int64_t A) { return row_width(A); }
int64_t foci_additive_forward_scratch(int64_t A) { return (ROWS + KEYS + 1) * row_width(A); }
int64_t foci_additive_backward_scratch(int64_t L, int64_t S) { return 2 * (L + S) * panel_group(L, S) * CELL; }

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

    // Enough tasks for every thread, but not so many that the keys are prepared over and over.
    const int64_t share = (B * L + 4 * threads - 1) / (4 * threads);
    const int64_t block = std::min(ROWS, std::max(ROWS / 8, share));
    const int64_t blocks = (L + block - 1) / block;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < B * blocks; n++) {
        const int64_t b = n / blocks, first = n % blocks * block, count = std::min(block, L - first);
        const float* q = query + b * query_batch + first * query_row;
        const float* k = key + b * key_batch;
        float* s = scores + (b * L + first) * S;
        float* x = scratch + this_thread() * foci_additive_forward_scratch(A);
        float* own_rows = x + ROWS * width;
        float* v = own_rows + KEYS * width;
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

// The gradients of Σ grad·scores: dq (B, L, A), dk (B, S, A), and sums (B, A) of grad·r, of which
// dv = Σ grad − 2 Σ sums. key_rows may be null.
void foci_additive_backward(const float* grad, const float* query, int64_t query_batch, int64_t query_row,
                            const float* key, int64_t key_batch, int64_t key_row, const float* key_rows,
                            int64_t key_rows_batch, const float* vector, int64_t B, int64_t L, int64_t S, int64_t A,
                            float* scratch, float* dq, float* dk, float* sums, int threads) {
    const int64_t most = panel_group(L, S) * CELL, groups = (A + most - 1) / most;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < B * groups; n++) {
        const int64_t b = n / groups, a = n % groups * most, entries = std::min(most, A - a);
        const Rows q{query + b * query_batch, query_row, L}, k{key + b * key_batch, key_row, S};
        float* x = scratch + this_thread() * foci_additive_backward_scratch(L, S);
        float* y = x + L * most;
        float* dx = y + S * most;
        float* dy = dx + L * most;
        std::fill_n(dx, (L + S) * most, 0.0f);

        bool wild = q.prepare_into(x, a, entries);
        if (key_rows) {
            const Rows prepared{key_rows + b * key_rows_batch, row_width(A), S};
            prepared.copy_into(y, a, entries);
            wild |= any_wild(prepared.at, S, A);
        } else {
            wild |= k.prepare_into(y, a, entries);
        }
        if (wild) {
            q.copy_into(x, a, entries);
            k.copy_into(y, a, entries);
        }
        for (int64_t e = 0; e < entries; e += CELL) {
            float dv[CELL] = {};
            const auto gradients = wild ? gradient_panel<true> : gradient_panel<false>;
            gradients(grad + b * L * S, L, S, x + e * L, y + e * S, dx + e * L, dy + e * S, dv);
            std::copy_n(dv, std::min(CELL, entries - e), sums + b * A + a + e);
        }
        write_panels(dx, L, vector + a, entries, dq + b * L * A + a, A);
        write_panels(dy, S, vector + a, entries, dk + b * S * A + a, A);
    }
}

}  // extern "C"
