// Location-aware attention, some steps of the batch in one call: forward and backward.
//
//     f_t = F ∗ α_{t−1}        e_tj = vᵀ tanh(q_t + k_j + U f_tj)        α_t = normalize_j(β e_t)
//
// normalize is a softmax, or sigmoids divided by their sum (smoothing). Positions that may not be read have weight 0, and
// only those between the first and the last that may be read are computed. A row of the batch is one task.
// The forward keeps f and, for smoothing, the sigmoids' slopes; the backward computes the tanh again and gives the
// gradients of U, F and v for each row of the batch, which the caller adds up.
//
// Plain C interface, float32; all tensors are contiguous, except that rows of the batch may share their keys or masks.
// Results do not depend on the number of threads.

#include <algorithm>
#include <cstdint>

#include "correlate.h"
#include "floats.h"
#include "scratch.h"
#include "softmax_positions.h"
#include "threads.h"

namespace {

#ifdef __AVX512F__
constexpr int HIDDEN = 2;  // vectors of hidden numbers at a time, for a tile of positions
#else
constexpr int HIDDEN = 1;
#endif

struct Sizes {
    int64_t B, L, S, A, F, W;  // batch, steps, positions, hidden size, filters, width of a filter (odd)
    int64_t P, positions;          // A in whole vectors, S in whole lines
    Correlation location;      // f from α and, the other way round, the gradient of α from that of f
    Correlation filter_grads;  // the gradient of F from that of f
    int64_t features;          // numbers in a row of f
    int64_t signal;            // of weights, or gradients of f, with the zeros that the first and the last position see

    Sizes(int64_t B, int64_t L, int64_t S, int64_t A, int64_t F, int64_t W)
        : B(B), L(L), S(S), A(A), F(F), W(W), P(round_up<LANES>(A)), positions(round_up<LINE>(S)), location(F, W, S),
          filter_grads(F, S, W), features(location.whole_out()),
          signal(std::max({location.whole_signal(), filter_grads.whole_signal(), W / 2 + filter_grads.whole_taps()})) {}
};

// --- what all rows of the batch share

struct Parameters {
    float *vector, *projection, *filters, *flipped;  // P numbers, F rows of P (the columns of U), the taps in parts, twice
    float *whole, *halves;                           // for the constructor only; `flipped` is for the backward only
    double sum_v = 0;
    int64_t size;

    Parameters(float* at, const Sizes& s) {
        Pieces pieces{at};
        vector = pieces.take(s.P);
        projection = pieces.take(s.F * s.P);
        filters = pieces.take(s.location.taps_size());
        flipped = pieces.take(s.location.taps_size());
        whole = pieces.take(s.F * s.location.whole_taps());
        halves = pieces.take(s.location.halves_size());
        size = pieces.total;
    }

    Parameters(float* at, const Sizes& s, const float* v, const float* f, const float* u, bool backward)
        : Parameters(at, s) {
        const Correlation location = s.location;
        std::fill_n(vector, s.P, 0.0f);
        std::fill_n(projection, s.F * s.P, 0.0f);
        std::fill_n(whole, s.F * location.whole_taps(), 0.0f);
        std::copy_n(v, s.A, vector);
        for (int64_t a = 0; a < s.A; a++) {
            sum_v += v[a];
            for (int64_t c = 0; c < s.F; c++) projection[c * s.P + a] = u[a * s.F + c] * TANH_SCALE;
        }
        for (int64_t c = 0; c < s.F; c++) std::copy_n(f + c * s.W, s.W, whole + c * location.whole_taps());
        split_taps(location, whole, location.whole_taps(), halves, filters);
        if (!backward) return;
        for (int64_t c = 0; c < s.F; c++)
            std::reverse(whole + c * location.whole_taps(), whole + c * location.whole_taps() + s.W);
        split_taps(location, whole, location.whole_taps(), halves, flipped);
    }
};

// --- the positions

// The keys or values of some positions: the last is repeated where there are fewer than EACH.
struct Tile {
    const float* row[EACH];
    int64_t count;  // of positions that there are

    Tile(const float* rows, int64_t j, int64_t last, int64_t size) : count(std::min<int64_t>(EACH, last - j)) {
        for (int64_t i = 0; i < EACH; i++) row[i] = rows + std::min(j + i, last - 1) * size;
    }
};

// x = 1 + e^{2 (q + k + U f)} of the positions of a tile at N vectors of a; tanh = 1 − 2 / x. The keys have all numbers of
// N − 1 vectors, and of the last one those there are.
template <int N>
__attribute__((always_inline)) inline void exponentials(const Tile& tile, const float* query, const float* projection,
                                                        const float* features, const Sizes& s, int64_t a,
                                                        Vector (&x)[N * EACH]) {
    UNROLL for (int i = 0; i < N * EACH; i++) x[i] = Vector{};
    for (int64_t c = 0; c < s.F; c++) {
        Vector u[N];
        UNROLL for (int n = 0; n < N; n++) u[n] = load(projection + c * s.P + a + n * LANES);
        UNROLL for (int i = 0; i < EACH; i++) {
            const Vector feature = all(features[c * s.features + i]);
            UNROLL for (int n = 0; n < N; n++) x[n * EACH + i] += feature * u[n];
        }
    }
    UNROLL for (int n = 0; n < N; n++) {
        const int64_t at = a + n * LANES;
        const Vector q = load(query + at);
        UNROLL for (int i = 0; i < EACH; i++) {
            // q + k first, and exactly: large numbers of opposite signs cancel.
            const Vector sum = q + (n == N - 1 ? load_some(tile.row[i] + at, s.A - at) : load(tile.row[i] + at));
            x[n * EACH + i] += sum * all(TANH_SCALE);
            __builtin_prefetch(tile.row[i] + EACH * s.A + at);  // the next tile's
        }
        UNROLL for (int i = 0; i < EACH; i += EACH / 2) one_plus_powers<EACH / 2>(x + n * EACH + i);
    }
}

// total[i] += Σ v / x over N vectors of a. Two quotients share a reciprocal: v/x + w/y = (v·y + w·x) / (x·y).
template <int N>
__attribute__((always_inline)) inline void add_quotients(const float* vector, int64_t a, const Vector (&x)[N * EACH],
                                                         Vector (&total)[EACH]) {
    static_assert(N == 1 || N == 2);
    const Vector v = load(vector + a);
    if constexpr (N == 1) {
        UNROLL for (int i = 0; i < EACH; i++) total[i] += v * reciprocal(x[i]);
    } else {
        const Vector w = load(vector + a + LANES);
        UNROLL for (int i = 0; i < EACH; i++)
            total[i] += (v * x[EACH + i] + w * x[i]) * reciprocal(x[i] * x[EACH + i]);
    }
}

// The scores of the positions within the range; `features` and `scores` begin with position 0 and are whole vectors.
// `value`, which may be null, is fetched meanwhile, to be read afterwards.
void score(const float* query, const float* key, const Parameters& shared, const float* features, const Sizes& s,
           Range range, const float* value, int64_t V, float* scores) {
    for (int64_t j = range.first; j < range.last; j += EACH) {
        const Tile tile(key, j, range.last, s.A);
        Vector total[EACH];
        for (auto& sum : total) sum = Vector{};
        int64_t a = 0;
        for (; a + (HIDDEN - 1) * LANES < s.P; a += HIDDEN * LANES) {
            Vector x[HIDDEN * EACH];
            exponentials<HIDDEN>(tile, query, shared.projection, features + j, s, a, x);
            add_quotients<HIDDEN>(shared.vector, a, x, total);
            if (value)
                for (int64_t i = 0; i < tile.count; i++)
                    for (int64_t n = a; n < V; n += s.P)
                        for (int h = 0; h < HIDDEN; h++) __builtin_prefetch(value + (j + i) * V + n + h * LANES, 0, 2);
        }
        if (a < s.P) {
            Vector x[EACH];
            exponentials<1>(tile, query, shared.projection, features + j, s, a, x);
            add_quotients<1>(shared.vector, a, x, total);
        }
        float sums[EACH];
        sum_each(total, sums);
        for (int64_t i = 0; i < tile.count; i++) scores[j + i] = static_cast<float>(shared.sum_v - 2.0 * sums[i]);
    }
}

struct TileGrads {
    float *query, *vector, *projection, *key, *features, *tile;
};

// The gradients of the positions of a tile at N vectors of a; `g` are those of the scores.
template <int N>
void tile_gradients(const Tile& tile, const float (&g)[EACH], const float* query, const Parameters& shared,
                    const float* features, const Sizes& s, int64_t a, float* key_grads, bool first, const TileGrads& to) {
    float sum_g = 0;
    for (const float one : g) sum_g += one;
    Vector x[N * EACH];
    exponentials<N>(tile, query, shared.projection, features, s, a, x);
    UNROLL for (int n = 0; n < N; n++) {
        const int64_t at = a + n * LANES;
        const Vector v = all(4.0f) * load(shared.vector + at);
        Vector sum = all(-0.5f * sum_g);  // the ½ of all positions at once: small sums stay precise
        Vector query_grad = load(to.query + at);
        UNROLL for (int i = 0; i < EACH; i++) {
            const Vector r = reciprocal(x[n * EACH + i]), m = all(g[i]) * r, h = m - m * r;
            sum += m;
            query_grad += h;
            x[n * EACH + i] = v * h;
            store(to.tile + i * s.P + at, x[n * EACH + i]);
        }
        store(to.query + at, query_grad);
        store(to.vector + at, load(to.vector + at) + sum);
        const int64_t some = n == N - 1 ? s.A - at : LANES;
        UNROLL for (int i = 0; i < EACH; i++) {
            float* key_grad = key_grads + i * s.A + at;
            __builtin_prefetch(key_grad + EACH * s.A, 1);  // the next tile's
            if (i < tile.count)
                store_some(key_grad, first ? x[n * EACH + i] : load_some(key_grad, some) + x[n * EACH + i], some);
        }
    }
    for (int64_t c = 0; c < s.F; c++) {
        Vector u[N];
        UNROLL for (int n = 0; n < N; n++) u[n] = load(to.projection + c * s.P + a + n * LANES);
        UNROLL for (int i = 0; i < EACH; i++) {
            const Vector feature = all(features[c * s.features + i]);
            UNROLL for (int n = 0; n < N; n++) u[n] += feature * x[n * EACH + i];
        }
        UNROLL for (int n = 0; n < N; n++) store(to.projection + c * s.P + a + n * LANES, u[n]);
    }
}

// The gradients of G features of the positions of a tile.
template <int G>
void feature_gradients(const float* tile, int64_t count, const float* projection, const Sizes& s, float* to) {
    Vector sums[G][EACH];
    UNROLL for (int g = 0; g < G; g++)
        UNROLL for (int i = 0; i < EACH; i++) sums[g][i] = Vector{};
    for (int64_t a = 0; a < s.P; a += LANES) {
        Vector u[G];
        UNROLL for (int g = 0; g < G; g++) u[g] = load(projection + g * s.P + a);
        UNROLL for (int i = 0; i < EACH; i++) {
            const Vector here = load(tile + i * s.P + a);
            UNROLL for (int g = 0; g < G; g++) sums[g][i] += u[g] * here;
        }
    }
    for (int g = 0; g < G; g++) {
        float found[EACH];
        sum_each(sums[g], found);
        for (int64_t i = 0; i < count; i++) to[g * s.signal + i] = found[i] * (1 / TANH_SCALE);
    }
}

// The gradients of the positions within the range, from those of the scores. `query` and `vector` are still to be
// multiplied, the one by 4·v, the other by −2. `first` says that nothing was written to `to.key` before.
void score_gradients(const float* grad, const float* query, const float* key, const Parameters& shared,
                     const float* features, const Sizes& s, Range range, bool first, const TileGrads& to) {
    if (first) {
        std::fill_n(to.key, range.first * s.A, 0.0f);
        std::fill_n(to.key + range.last * s.A, (s.S - range.last) * s.A, 0.0f);
    }
    for (int64_t j = range.first; j < range.last; j += EACH) {
        const Tile tile(key, j, range.last, s.A);
        float g[EACH] = {};
        bool any = false;
        for (int64_t i = 0; i < tile.count; i++) any |= (g[i] = grad[j + i]) != 0;
        float* key_grads = to.key + j * s.A;
        if (!any) {
            if (first) std::fill_n(key_grads, tile.count * s.A, 0.0f);
            continue;
        }
        int64_t a = 0;
        for (; a + (HIDDEN - 1) * LANES < s.P; a += HIDDEN * LANES)
            tile_gradients<HIDDEN>(tile, g, query, shared, features + j, s, a, key_grads, first, to);
        if (a < s.P) tile_gradients<1>(tile, g, query, shared, features + j, s, a, key_grads, first, to);
        int64_t c = 0;
        for (; c + HIDDEN <= s.F; c += HIDDEN)
            feature_gradients<HIDDEN>(to.tile, tile.count, shared.projection + c * s.P, s, to.features + c * s.signal + j);
        if (c < s.F)
            feature_gradients<1>(to.tile, tile.count, shared.projection + c * s.P, s, to.features + c * s.signal + j);
    }
}

// output[n] = Σ_j weights[j] · value[j, n] for N vectors of n, of which the last may be a part of one.
template <int N>
void read_vectors(const float* weights, Range range, const float* value, int64_t V, int64_t count, float* output) {
    Vector sums[N];
    for (auto& sum : sums) sum = Vector{};
    for (int64_t j = range.first; j < range.last; j++) {
        const Vector weight = all(weights[j]);
        for (int n = 0; n < N; n++) sums[n] += weight * load_some(value + j * V + n * LANES, count - n * LANES);
    }
    for (int n = 0; n < N; n++) store_some(output + n * LANES, sums[n], count - n * LANES);
}

template <int N>
void read(const float* weights, Range range, const float* value, int64_t V, int64_t first, float* output) {
    int64_t v = first;
    for (; V - v > (N - 1) * LANES; v += N * LANES) read_vectors<N>(weights, range, value + v, V, V - v, output + v);
    if constexpr (N > 1)
        if (v < V) read<N / 2>(weights, range, value, V, v, output);
}

// to[j, n] += weights[j] · grad[n], or = where nothing was written before, for N vectors of n.
template <int N>
void spread_vectors(const float* grad, const float* weights, Range range, int64_t V, int64_t count, bool first,
                    float* to) {
    Vector g[N];
    UNROLL for (int n = 0; n < N; n++) g[n] = load_some(grad + n * LANES, count - n * LANES);
    for (int64_t j = range.first; j < range.last; j++) {
        const Vector weight = all(weights[j]);
        float* row = to + j * V;
        UNROLL for (int n = 0; n < N; n++) {
            const int64_t some = count - n * LANES;
            store_some(row + n * LANES, first ? weight * g[n] : load_some(row + n * LANES, some) + weight * g[n], some);
        }
    }
}

template <int N>
void spread(const float* grad, const float* weights, Range range, int64_t V, int64_t v, bool first, float* to) {
    for (; V - v > (N - 1) * LANES; v += N * LANES)
        spread_vectors<N>(grad + v, weights, range, V, V - v, first, to + v);
    if constexpr (N > 1)
        if (v < V) spread<N / 2>(grad, weights, range, V, v, first, to);
}

// Adds the gradient of what was read to that of the weights, and to that of the value; `first` says that nothing was
// written to `value_grad`, which may be null, before. Positions outside of the range were not read.
void read_gradients(const float* grad, const float* weights, Range range, const float* value, int64_t S, int64_t V,
                    bool first, float* weight_grads, float* value_grad) {
    if (first && value_grad) {
        std::fill_n(value_grad, range.first * V, 0.0f);
        std::fill_n(value_grad + range.last * V, (S - range.last) * V, 0.0f);
    }
    for (int64_t j = range.first; j < range.last; j += EACH) {
        const Tile tile(value, j, range.last, V);
        Vector sums[EACH];
        UNROLL for (auto& sum : sums) sum = Vector{};
        for (int64_t v = 0; v < V; v += LANES) {
            const Vector g = load_some(grad + v, V - v);
            UNROLL for (int i = 0; i < EACH; i++) sums[i] += g * load_some(tile.row[i] + v, V - v);
        }
        float found[EACH];
        sum_each(sums, found);
        for (int64_t i = 0; i < tile.count; i++) weight_grads[j + i] += found[i];
    }
    if (value_grad) spread<8>(grad, weights, range, V, 0, first, value_grad);
}

// --- forward

struct Forward {
    float *signal, *signal_parts, *products, *halves, *features, *query, *scores, *allowed, *factors;
    int64_t size;

    Forward(float* at, const Sizes& s) {
        Pieces pieces{at};
        signal = pieces.take(s.signal);
        signal_parts = pieces.take(s.location.signal_size());
        products = pieces.take(s.location.products_size());
        halves = pieces.take(s.location.halves_size());
        features = pieces.take(s.F * s.features + LINE);  // the last tile reads past the last position
        query = pieces.take(s.P);
        scores = pieces.take(s.positions);
        allowed = pieces.take(s.positions);
        factors = pieces.take(s.positions);
        size = pieces.total;
    }
};

// Copies numbers into a row with zeros around them, the first at `start`.
void surround(const float* from, int64_t count, int64_t start, int64_t size, float* to) {
    std::fill_n(to, start, 0.0f);
    std::copy_n(from, count, to + start);
    std::fill_n(to + start + count, size - start - count, 0.0f);
}

// Turns scores s into min(s, 0), with the factors that make their softmax one of sigmoids: σ(s) = e^{min(s, 0)}·factor.
// Gives the slope of log σ, 1 − σ(s), for `count` positions, unless `slopes` is null.
void smooth(float* scores, float* factors, int64_t positions, int64_t count, float* slopes) {
    for (int64_t j = 0; j < positions; j += LANES) {
        const Vector x = load(scores + j);
        Vector far = x > Vector{} ? -x : x;
        far = far < all(DEEPEST) ? all(DEEPEST) : far;
        const Vector e = exponential(far), factor = all(1.0f) / (all(1.0f) + e);
        store(scores + j, x > Vector{} ? Vector{} : x);
        store(factors + j, factor);
        if (slopes && j < count) store_some(slopes + j, x > Vector{} ? e * factor : factor, count - j);
    }
}

struct Options {
    float sharpening;
    bool smoothing;
};

// The steps of one row of the batch. `mask` may be null, `kept` (features), `slopes`, and `value` with `output` too.
void forward_row(const float* query, const float* key, const uint8_t* mask, int64_t mask_step, const float* previous,
                 const Parameters& shared, const Options& options, const float* value, int64_t V, const Sizes& s,
                 const Forward& at, float* weights, float* kept, float* slopes, float* output) {
    std::fill_n(at.features + s.F * s.features, LINE, 0.0f);
    std::fill_n(at.query, s.P, 0.0f);
    for (int64_t t = 0; t < s.L; t++) {
        const uint8_t* readable = mask ? mask + t * mask_step : nullptr;
        const Range range = readable ? nonzero(readable, s.S) : Range{0, s.S};
        for (int64_t j = 0; j < s.positions; j++)
            at.allowed[j] = j < s.S && (!readable || readable[j]) ? 1.0f : 0.0f;
        surround(previous, s.S, s.W / 2, s.signal, at.signal);
        const Range some = nonzero(previous, s.S), heard{some.first + s.W / 2, some.last + s.W / 2};
        split_signal(s.location, at.signal, s.location.signal_row(), at.halves, at.signal_parts);
        correlate(s.location, shared.filters, {0, s.W}, at.signal_parts, heard, at.products, at.halves, at.features,
                  s.features);
        std::copy_n(query + t * s.A, s.A, at.query);
        std::fill_n(at.scores, s.positions, 0.0f);
        score(at.query, key, shared, at.features, s, range, value, V, at.scores);
        for (int64_t j = 0; j < s.positions; j++) at.scores[j] *= options.sharpening;
        if (options.smoothing) smooth(at.scores, at.factors, s.positions, s.S, slopes ? slopes + t * s.S : nullptr);
        weigh(at.scores, at.allowed, s.positions, options.smoothing ? at.factors : nullptr);
        std::copy_n(at.scores, s.S, weights + t * s.S);
        if (value) read<8>(at.scores, range, value, V, 0, output + t * V);
        if (kept) std::copy_n(at.features, s.F * s.features, kept + t * s.F * s.features);
        previous = weights + t * s.S;
    }
}

// --- backward

struct Backward {
    float *signal, *signal_parts, *features, *query, *scores, *carried, *query_grad, *vector_grad, *projection_grad,
        *filter_grad, *feature_grads, *tap_parts, *feature_parts, *products, *halves, *tile;
    int64_t size;

    Backward(float* at, const Sizes& s) {
        const Correlation &forward = s.location, &filters = s.filter_grads;
        Pieces pieces{at};
        signal = pieces.take(s.signal);
        signal_parts = pieces.take(filters.signal_size());
        features = pieces.take(s.F * s.features + LINE);
        query = pieces.take(s.P);
        scores = pieces.take(s.positions);
        carried = pieces.take(s.features);
        query_grad = pieces.take(s.P);
        vector_grad = pieces.take(s.P);
        projection_grad = pieces.take(s.F * s.P);
        filter_grad = pieces.take(s.F * filters.whole_out());
        feature_grads = pieces.take(s.F * s.signal);
        tap_parts = pieces.take(filters.taps_size());
        feature_parts = pieces.take(s.F * forward.signal_size());
        products = pieces.take(std::max(forward.products_size(), filters.products_size()));
        halves = pieces.take(std::max(forward.halves_size(), filters.halves_size()));
        tile = pieces.take(EACH * s.P);
        size = pieces.total;
    }
};

struct RowGrads {
    float *query, *key, *previous, *vector, *projection, *filters, *value;
    bool adds_key;  // to what `key` holds already
};

// What a row of the batch has read: the gradient of the output (L, V), and the value (S, V); both may be null.
struct Reading {
    const float *grad, *value;
    int64_t V;
};

void backward_row(const float* grad, const float* query, const float* key, const float* previous, const float* weights,
                  const float* kept, const float* slopes, const Reading& reading, const Parameters& shared,
                  const Options& options, const Sizes& s, const Backward& at, const RowGrads& to) {
    const Correlation &forward = s.location, &filters = s.filter_grads;
    const int64_t A = s.A, P = s.P, S = s.S, half = s.W / 2, filter_row = filters.whole_out();
    std::fill_n(at.features + s.F * s.features, LINE, 0.0f);
    std::fill_n(at.query, P, 0.0f);
    std::fill_n(at.carried, s.features, 0.0f);
    std::fill_n(at.vector_grad, P, 0.0f);
    std::fill_n(at.projection_grad, s.F * P, 0.0f);
    if (!s.L && !to.adds_key) std::fill_n(to.key, S * A, 0.0f);
    if (!s.L && to.value) std::fill_n(to.value, S * reading.V, 0.0f);
    std::fill_n(to.filters, s.F * s.W, 0.0f);
    for (int64_t t = s.L - 1; t >= 0; t--) {
        const float* before = t ? weights + (t - 1) * S : previous;
        const bool first = t == s.L - 1;
        if (reading.grad)
            read_gradients(reading.grad + t * reading.V, weights + t * S, nonzero(weights + t * S, S), reading.value, S,
                           reading.V, first, at.carried, to.value);
        softmax_gradients(grad + t * S, at.carried, weights + t * S, after(slopes, t * S), options.sharpening, S, at.scores);
        const Range range = nonzero(at.scores, S);
        std::copy_n(kept + t * s.F * s.features, s.F * s.features, at.features);
        std::copy_n(query + t * A, A, at.query);
        std::fill_n(at.query_grad, P, 0.0f);
        std::fill_n(at.feature_grads, s.F * s.signal, 0.0f);
        const TileGrads grads{at.query_grad, at.vector_grad, at.projection_grad, to.key, at.feature_grads + half, at.tile};
        score_gradients(at.scores, at.query, key, shared, at.features, s, range, first && !to.adds_key, grads);
        for (int64_t a = 0; a < A; a++) to.query[t * A + a] = 4 * shared.vector[a] * at.query_grad[a];

        surround(before, S, half, s.signal, at.signal);
        const Range some = nonzero(before, S);
        if (some.first < some.last) {  // otherwise f was 0
            split_signal(filters, at.signal, filters.signal_row(), at.halves, at.signal_parts);
            split_taps(filters, at.feature_grads + half, s.signal, at.halves, at.tap_parts);
            correlate(filters, at.tap_parts, range, at.signal_parts, {some.first + half, some.last + half}, at.products,
                      at.halves, at.filter_grad, filter_row);
            for (int64_t c = 0; c < s.F; c++)
                for (int64_t k = 0; k < s.W; k++) to.filters[c * s.W + k] += at.filter_grad[c * filter_row + k];
        }
        if (t || to.previous) {
            for (int64_t c = 0; c < s.F; c++)
                split_signal(forward, at.feature_grads + c * s.signal, s.F * forward.signal_row(), at.halves,
                             at.feature_parts + c * forward.signal_row());
            correlate_and_add(forward, shared.flipped, {0, s.W}, at.feature_parts,
                              {range.first + half, range.last + half}, at.products, at.halves, at.carried);
        }
    }
    if (to.previous) std::copy_n(at.carried, S, to.previous);
    for (int64_t a = 0; a < A; a++) {
        to.vector[a] = -2 * at.vector_grad[a];
        for (int64_t c = 0; c < s.F; c++) to.projection[a * s.F + c] = at.projection_grad[c * P + a];
    }
}

}  // namespace

extern "C" {

// Floats of scratch that both need, and the floats of the kept features of a step.
int64_t foci_location_aware_scratch(int64_t S, int64_t A, int64_t F, int64_t W, int threads) {
    const Sizes s{0, 0, S, A, F, W};
    return Parameters(nullptr, s).size + threads * std::max(Forward(nullptr, s).size, Backward(nullptr, s).size);
}
int64_t foci_location_aware_kept(int64_t S, int64_t F, int64_t W) { return F * Sizes{0, 0, S, 0, F, W}.features; }

// query (B, L, A), key (B, S, A), mask (B, L or 1, S) or null, previous (B, S), vector (A), filters (F, W), projection
// (A, F); key_batch, mask_batch and mask_step are strides, 0 where rows share; weights (B, L, S), and what the backward
// needs, or null: kept (B, L, foci_location_aware_kept) and, for smoothing, slopes (B, L, S). Where value (B, S, V) is not
// null, output (B, L, V) is what the weights read of it.
void foci_location_aware_forward(const float* query, const float* key, int64_t key_batch, const uint8_t* mask,
                                 int64_t mask_batch, int64_t mask_step, const float* previous, const float* vector,
                                 const float* filters, const float* projection, const float* value,
                                 int64_t value_batch, int64_t V, int64_t B, int64_t L, int64_t S, int64_t A, int64_t F,
                                 int64_t W, float sharpening, int smoothing, float* scratch, float* weights,
                                 float* kept, float* slopes, float* output, int threads) {
    const Sizes s{B, L, S, A, F, W};
    const Parameters shared(scratch, s, vector, filters, projection, false);
    const Options options{sharpening, smoothing != 0};
    float* rows = scratch + shared.size;
    const int64_t size = Forward(nullptr, s).size;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b++)
        forward_row(query + b * L * A, key + b * key_batch, after(mask, b * mask_batch), mask_step, previous + b * S,
                    shared, options, after(value, b * value_batch), V, s, Forward(rows + this_thread() * size, s),
                    weights + b * L * S, after(kept, b * L * F * s.features), after(slopes, b * L * S),
                    after(output, b * L * V));
}

// The gradients query_grad (B, L, A), key_grad (B, S, A), previous_grad (B, S), which may be null, and, for each row of
// the batch, parameter_grads (B, A + F·W + A·F), those of vector, filters and projection. slopes is null for a softmax.
// output_grad (B, L, V), with value (B, S, V), may be null, and value_grad (B, S, V) too. With adds_key, the gradient is added
// to what key_grad holds.
void foci_location_aware_backward(const float* grad, const float* query, const float* key, const float* previous,
                                  const float* vector, const float* filters, const float* projection,
                                  const float* weights, const float* kept, const float* slopes,
                                  const float* output_grad, const float* value, int64_t V, int64_t B, int64_t L,
                                  int64_t S, int64_t A, int64_t F, int64_t W, float sharpening, float* scratch,
                                  float* query_grad, float* key_grad, float* previous_grad, float* parameter_grads,
                                  float* value_grad, int adds_key, int threads) {
    const Sizes s{B, L, S, A, F, W};
    const Parameters shared(scratch, s, vector, filters, projection, true);
    const Options options{sharpening, slopes != nullptr};
    float* rows = scratch + shared.size;
    const int64_t size = Backward(nullptr, s).size;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b++) {
        float *vector_grad = parameter_grads + b * (A + F * W + A * F), *filter_grad = vector_grad + A;
        const RowGrads to{query_grad + b * L * A, key_grad + b * S * A, after(previous_grad, b * S), vector_grad,
                          filter_grad + F * W, filter_grad, after(value_grad, b * S * V), adds_key != 0};
        const Reading reading{after(output_grad, b * L * V), after(value, b * S * V), V};
        backward_row(grad + b * L * S, query + b * L * A, key + b * S * A, previous + b * S, weights + b * L * S,
                     kept + b * L * F * s.features, after(slopes, b * L * S), reading, shared, options, s,
                     Backward(rows + this_thread() * size, s), to);
    }
}

}  // extern "C"
