// Location-aware attention, some steps of the batch in one call: forward and backward.
//
//     f_t = F ∗ α_{t−1}        e_tj = vᵀ tanh(q_t + k_j + U f_tj)        α_t = normalise_j(β e_t)
//
// normalise is a softmax, or sigmoids divided by their sum (smoothing). Cells that may not be read have weight 0, and
// only those between the first and the last that may be read are computed. A row of the batch is one task.
// The forward keeps f and, for smoothing, the sigmoids' slopes; the backward computes the tanh again and gives the
// gradients of U, F and v for each row of the batch, which the caller adds up.
//
// Plain C interface, float32; all tensors are contiguous, except that rows of the batch may share their keys or masks.
// Results do not depend on the number of threads.

#include <algorithm>
#include <cstdint>

#include "floats.h"
#include "scratch.h"
#include "softmax_cells.h"
#include "threads.h"

namespace {

constexpr int64_t LINE = 16;  // rows of the scratch are whole cache lines
#ifdef __AVX512F__
constexpr int FILTERS = 5;  // filters at a time: with 4 vectors of cells, their sums fill the registers
#else
constexpr int FILTERS = 2;
#endif

struct Sizes {
    int64_t B, L, S, A, F, W;  // batch, steps, cells, hidden size, filters, width of a filter (odd)
    int64_t P() const { return round_up<LINE>(A); }
    int64_t cells() const { return round_up<LINE>(S); }
    int64_t taps() const { return round_up<LINE>(W); }
    // Weights with the zeros that the first and the last cell see around them, and what a last vector reads past it.
    int64_t signal() const { return cells() + taps() + 4 * LINE; }
};

struct Range {
    int64_t first, last;  // the last is excluded
};

template <typename Number>
Range nonzero(const Number* x, int64_t count) {
    int64_t first = 0, last = count;
    while (first < last && x[first] == 0) first++;
    while (last > first && x[last - 1] == 0) last--;
    return {first, last};
}

// --- the convolution and its gradients

// out[c, o] = Σ_k taps[c, k] · signal[o + k] for G filters and N vectors of o; k within `seen`.
template <int G, int N>
void correlate_tile(const float* taps, int64_t taps_row, Range seen, const float* signal, float* out, int64_t out_row) {
    Vector sums[G][N];
    for (int g = 0; g < G; g++)
        for (int n = 0; n < N; n++) sums[g][n] = Vector{};
    for (int64_t k = seen.first; k < seen.last; k++) {
        Vector here[N];
        for (int n = 0; n < N; n++) here[n] = load(signal + k + n * LANES);
        for (int g = 0; g < G; g++) {
            const Vector tap = all(taps[g * taps_row + k]);
            for (int n = 0; n < N; n++) sums[g][n] += tap * here[n];
        }
    }
    for (int g = 0; g < G; g++)
        for (int n = 0; n < N; n++) store(out + g * out_row + n * LANES, sums[g][n]);
}

template <int G, int N>
void correlate_filters(const float* taps, int64_t taps_row, int64_t F, Range seen, const float* signal, float* out,
                       int64_t out_row) {
    for (; F >= G; F -= G, taps += G * taps_row, out += G * out_row)
        correlate_tile<G, N>(taps, taps_row, seen, signal, out, out_row);
    if constexpr (G > 1)
        if (F) correlate_filters<G - 1, N>(taps, taps_row, F, seen, signal, out, out_row);
}

// The same for `count` numbers o, as whole vectors. `taps` are zero outside of `used`, the signal outside of `heard`.
void correlate(const float* taps, int64_t taps_row, int64_t F, Range used, const float* signal, Range heard,
               int64_t count, float* out, int64_t out_row) {
    const auto seen = [&](int64_t o, int64_t width) {
        const int64_t first = std::max(used.first, heard.first - (o + width - 1));
        return Range{first, std::max(first, std::min(used.last, heard.last - o))};
    };
    int64_t o = 0;
    for (; o + 4 * LANES <= round_up<LANES>(count); o += 4 * LANES)
        correlate_filters<FILTERS, 4>(taps, taps_row, F, seen(o, 4 * LANES), signal + o, out + o, out_row);
    for (; o < count; o += LANES)
        correlate_filters<FILTERS, 1>(taps, taps_row, F, seen(o, LANES), signal + o, out + o, out_row);
}

// out[o] = Σ_c Σ_k taps[c, k] · signals[c, o + k] for `count` numbers o; the signals are zero outside of `heard`.
void correlate_all(const float* taps, int64_t taps_row, int64_t F, int64_t W, const float* signals, int64_t row,
                   Range heard, int64_t count, float* out) {
    for (int64_t o = 0; o < count; o += 4 * LANES) {
        Vector sums[4] = {Vector{}, Vector{}, Vector{}, Vector{}};
        const int64_t first = std::max<int64_t>(0, heard.first - (o + 4 * LANES - 1));
        const int64_t last = std::min(W, heard.last - o);
        for (int64_t c = 0; c < F; c++)
            for (int64_t k = first; k < last; k++) {
                const Vector tap = all(taps[c * taps_row + k]);
                for (int n = 0; n < 4; n++) sums[n] += tap * load(signals + c * row + o + k + n * LANES);
            }
        for (int n = 0; n < 4; n++) store_some(out + o + n * LANES, sums[n], std::max<int64_t>(0, count - o - n * LANES));
    }
}

// --- what all rows of the batch share

struct Parameters {
    float *vector, *projection, *filters, *flipped;  // P numbers, F rows of P (the columns of U), F rows of taps, twice
    double sum_v;

    static int64_t size(const Sizes& s) { return s.P() + s.F * s.P() + 2 * s.F * s.taps(); }

    Parameters(float* scratch, const Sizes& s, const float* v, const float* f, const float* u) {
        Pieces pieces{scratch};
        vector = pieces.take(s.P());
        projection = pieces.take(s.F * s.P());
        filters = pieces.take(s.F * s.taps());
        flipped = pieces.take(s.F * s.taps());
        std::fill_n(scratch, size(s), 0.0f);
        std::copy_n(v, s.A, vector);
        sum_v = 0;
        for (int64_t a = 0; a < s.A; a++) {
            sum_v += v[a];
            for (int64_t c = 0; c < s.F; c++) projection[c * s.P() + a] = u[a * s.F + c];
        }
        for (int64_t c = 0; c < s.F; c++) {
            std::copy_n(f + c * s.W, s.W, filters + c * s.taps());
            std::reverse_copy(f + c * s.W, f + (c + 1) * s.W, flipped + c * s.taps());
        }
    }
};

// --- the cells

// The keys of a tile: the last is repeated where there are fewer than EACH.
struct Tile {
    const float* key[EACH];
    int64_t count;  // of keys that there are

    Tile(const float* keys, int64_t j, int64_t last, int64_t A) : count(std::min<int64_t>(EACH, last - j)) {
        for (int64_t i = 0; i < EACH; i++) key[i] = keys + std::min(j + i, last - 1) * A;
    }
};

// r = 1 / (1 + e^{2x}) of the cells of a tile at one vector of a; tanh x = 1 − 2r.
inline void half_tanhs(const Tile& tile, const float* query, const float* projection, const float* features,
                       const Sizes& s, int64_t a, Vector (&r)[EACH]) {
    const Vector q = load(query + a);
    for (int i = 0; i < EACH; i++) {
        r[i] = q + load_some(tile.key[i] + a, s.A - a);
        __builtin_prefetch(tile.key[i] + EACH * s.A + a);  // the next tile's
    }
    for (int64_t c = 0; c < s.F; c++) {
        const Vector u = load(projection + c * s.P() + a);
        for (int i = 0; i < EACH; i++) r[i] += all(features[c * s.cells() + i]) * u;
    }
    for (int i = 0; i < EACH; i++) r[i] = half_tanh(r[i]);
}

// The scores of the cells within the range; `features` and `scores` begin with cell 0 and are whole vectors.
// `value`, which may be null, is fetched meanwhile, to be read afterwards.
void score(const float* query, const float* key, const Parameters& shared, const float* features, const Sizes& s,
           Range range, const float* value, int64_t V, float* scores) {
    for (int64_t j = range.first; j < range.last; j += EACH) {
        const Tile tile(key, j, range.last, s.A);
        Vector total[EACH];
        for (auto& sum : total) sum = Vector{};
        for (int64_t a = 0; a < s.P(); a += LANES) {
            Vector r[EACH];
            half_tanhs(tile, query, shared.projection, features + j, s, a, r);
            const Vector v = load(shared.vector + a);
            for (int i = 0; i < EACH; i++) total[i] += v * r[i];
            if (value)
                for (int64_t i = 0; i < tile.count; i++)
                    for (int64_t n = a; n < V; n += s.P()) __builtin_prefetch(value + (j + i) * V + n, 0, 2);
        }
        float sums[EACH];
        sum_each(total, sums);
        for (int64_t i = 0; i < tile.count; i++) scores[j + i] = static_cast<float>(shared.sum_v - 2.0 * sums[i]);
    }
}

struct CellGrads {
    float *query, *vector, *projection, *key, *features, *tile;
};

// The gradients of the cells within the range, from those of the scores. `query` and `vector` are still to be
// multiplied, the one by 4·v, the other by −2. `first` says that nothing was written to `to.key` before.
void score_gradients(const float* grad, const float* query, const float* key, const Parameters& shared,
                     const float* features, const Sizes& s, Range range, bool first, const CellGrads& to) {
    const int64_t P = s.P();
    if (first) {
        std::fill_n(to.key, range.first * s.A, 0.0f);
        std::fill_n(to.key + range.last * s.A, (s.S - range.last) * s.A, 0.0f);
    }
    for (int64_t j = range.first; j < range.last; j += EACH) {
        const Tile tile(key, j, range.last, s.A);
        float g[EACH] = {}, sum_g = 0;
        bool any = false;
        for (int64_t i = 0; i < tile.count; i++) {
            sum_g += g[i] = grad[j + i];
            any |= g[i] != 0;
        }
        if (!any) {
            if (first) std::fill_n(to.key + j * s.A, tile.count * s.A, 0.0f);
            continue;
        }
        for (int64_t a = 0; a < P; a += LANES) {
            Vector r[EACH];
            half_tanhs(tile, query, shared.projection, features + j, s, a, r);
            const Vector v = all(4.0f) * load(shared.vector + a);
            Vector sum = all(-0.5f * sum_g);  // the ½ of all cells at once: small sums stay precise
            Vector query_grad = load(to.query + a);
            for (int i = 0; i < EACH; i++) {
                const Vector m = all(g[i]) * r[i], h = m - m * r[i];
                sum += m;
                query_grad += h;
                r[i] = v * h;
                store(to.tile + i * P + a, r[i]);
            }
            store(to.query + a, query_grad);
            store(to.vector + a, load(to.vector + a) + sum);
            for (int64_t i = 0; i < tile.count; i++) {
                float* key_grad = to.key + (j + i) * s.A + a;
                store_some(key_grad, first ? r[i] : load_some(key_grad, s.A - a) + r[i], s.A - a);
            }
            for (int64_t c = 0; c < s.F; c++) {
                Vector u = load(to.projection + c * P + a);
                for (int i = 0; i < EACH; i++) u += all(features[c * s.cells() + j + i]) * r[i];
                store(to.projection + c * P + a, u);
            }
        }
        for (int64_t c = 0; c < s.F; c++) {
            Vector sums[EACH];
            for (auto& sum : sums) sum = Vector{};
            for (int64_t a = 0; a < P; a += LANES) {
                const Vector u = load(shared.projection + c * P + a);
                for (int i = 0; i < EACH; i++) sums[i] += u * load(to.tile + i * P + a);
            }
            float found[EACH];
            sum_each(sums, found);
            std::copy_n(found, tile.count, to.features + c * s.signal() + j);
        }
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

// --- forward

struct Forward {
    float *signal, *features, *query, *scores, *allowed, *factors;
    int64_t size;

    Forward(float* at, const Sizes& s) {
        Pieces pieces{at};
        signal = pieces.take(s.signal());
        features = pieces.take(s.F * s.cells() + LINE);  // the last tile reads past the last cell
        query = pieces.take(s.P());
        scores = pieces.take(s.cells());
        allowed = pieces.take(s.cells());
        factors = pieces.take(s.cells());
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
// Gives the slope of log σ, 1 − σ(s), for `count` cells, unless `slopes` is null.
void smooth(float* scores, float* factors, int64_t cells, int64_t count, float* slopes) {
    for (int64_t j = 0; j < cells; j += LANES) {
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
    std::fill_n(at.features, s.F * s.cells() + LINE, 0.0f);
    std::fill_n(at.query, s.P(), 0.0f);
    for (int64_t t = 0; t < s.L; t++) {
        const uint8_t* readable = mask ? mask + t * mask_step : nullptr;
        const Range range = readable ? nonzero(readable, s.S) : Range{0, s.S};
        for (int64_t j = 0; j < s.cells(); j++)
            at.allowed[j] = j < s.S && (!readable || readable[j]) ? 1.0f : 0.0f;
        surround(previous, s.S, s.W / 2, s.signal(), at.signal);
        const Range some = nonzero(previous, s.S), heard{some.first + s.W / 2, some.last + s.W / 2};
        correlate(shared.filters, s.taps(), s.F, {0, s.W}, at.signal, heard, s.S, at.features, s.cells());
        std::copy_n(query + t * s.A, s.A, at.query);
        std::fill_n(at.scores, s.cells(), 0.0f);
        score(at.query, key, shared, at.features, s, range, value, V, at.scores);
        for (int64_t j = 0; j < s.cells(); j++) at.scores[j] *= options.sharpening;
        if (options.smoothing) smooth(at.scores, at.factors, s.cells(), s.S, slopes ? slopes + t * s.S : nullptr);
        weigh(at.scores, at.allowed, s.cells(), options.smoothing ? at.factors : nullptr);
        std::copy_n(at.scores, s.S, weights + t * s.S);
        if (value) read<8>(at.scores, range, value, V, 0, output + t * V);
        if (kept) std::copy_n(at.features, s.F * s.cells(), kept + t * s.F * s.cells());
        previous = weights + t * s.S;
    }
}

// --- backward

struct Backward {
    float *signal, *features, *query, *scores, *carried, *query_grad, *vector_grad, *projection_grad, *filter_grad,
        *feature_grads, *tile;
    int64_t size;

    Backward(float* at, const Sizes& s) {
        Pieces pieces{at};
        signal = pieces.take(s.signal());
        features = pieces.take(s.F * s.cells() + LINE);
        query = pieces.take(s.P());
        scores = pieces.take(s.cells());
        carried = pieces.take(s.cells());
        query_grad = pieces.take(s.P());
        vector_grad = pieces.take(s.P());
        projection_grad = pieces.take(s.F * s.P());
        filter_grad = pieces.take(s.F * (s.taps() + 4 * LINE));
        feature_grads = pieces.take(s.F * s.signal());
        tile = pieces.take(EACH * s.P());
        size = pieces.total;
    }
};

struct RowGrads {
    float *query, *key, *previous, *vector, *projection, *filters;
};

// The gradient of the scores of a step, without the sharpening; `slopes` is null for a softmax.
void score_grads(const float* grad, const float* carried, const float* weight, const float* slopes, const Options& options,
                 const Sizes& s, float* scores) {
    Vector means{};
    for (int64_t j = 0; j < s.S; j += LANES) {
        const int64_t here = s.S - j;
        const Vector w = load_some(weight + j, here), g = load_some(grad + j, here) + load(carried + j);
        means += w == Vector{} ? Vector{} : w * g;
        store(scores + j, g);
    }
    const Vector mean = all(sum_lanes<float>(means)), sharpening = all(options.sharpening);
    for (int64_t j = 0; j < s.S; j += LANES) {
        const Vector w = load_some(weight + j, s.S - j);
        Vector g = w == Vector{} ? Vector{} : w * (load(scores + j) - mean) * sharpening;
        if (slopes) g *= load_some(slopes + j, s.S - j);
        store(scores + j, g);
    }
}

void backward_row(const float* grad, const float* query, const float* key, const float* previous, const float* weights,
                  const float* kept, const float* slopes, const Parameters& shared, const Options& options,
                  const Sizes& s, const Backward& at, const RowGrads& to) {
    const int64_t A = s.A, P = s.P(), S = s.S, half = s.W / 2, filter_row = s.taps() + 4 * LINE;
    std::fill_n(at.features + s.F * s.cells(), LINE, 0.0f);
    std::fill_n(at.query, P, 0.0f);
    std::fill_n(at.carried, s.cells(), 0.0f);
    std::fill_n(at.vector_grad, P, 0.0f);
    std::fill_n(at.projection_grad, s.F * P, 0.0f);
    if (!s.L) std::fill_n(to.key, S * A, 0.0f);
    std::fill_n(to.filters, s.F * s.W, 0.0f);
    for (int64_t t = s.L - 1; t >= 0; t--) {
        const float* before = t ? weights + (t - 1) * S : previous;
        score_grads(grad + t * S, at.carried, weights + t * S, slopes ? slopes + t * S : nullptr, options, s, at.scores);
        const Range range = nonzero(at.scores, S);
        std::copy_n(kept + t * s.F * s.cells(), s.F * s.cells(), at.features);
        std::copy_n(query + t * A, A, at.query);
        std::fill_n(at.query_grad, P, 0.0f);
        std::fill_n(at.feature_grads, s.F * s.signal(), 0.0f);
        const CellGrads cells{at.query_grad, at.vector_grad, at.projection_grad, to.key, at.feature_grads + half, at.tile};
        score_gradients(at.scores, at.query, key, shared, at.features, s, range, t == s.L - 1, cells);
        for (int64_t a = 0; a < A; a++) to.query[t * A + a] = 4 * shared.vector[a] * at.query_grad[a];

        surround(before, S, half, s.signal(), at.signal);
        const Range some = nonzero(before, S);
        if (some.first < some.last) {  // otherwise f was 0
            correlate(at.feature_grads + half, s.signal(), s.F, range, at.signal, {some.first + half, some.last + half},
                      s.W, at.filter_grad, filter_row);
            for (int64_t c = 0; c < s.F; c++)
                for (int64_t k = 0; k < s.W; k++) to.filters[c * s.W + k] += at.filter_grad[c * filter_row + k];
        }
        if (t || to.previous)
            correlate_all(shared.flipped, s.taps(), s.F, s.W, at.feature_grads, s.signal(),
                          {range.first + half, range.last + half}, S, at.carried);
    }
    if (to.previous) std::copy_n(at.carried, S, to.previous);
    for (int64_t a = 0; a < A; a++) {
        to.vector[a] = -2 * at.vector_grad[a];
        for (int64_t c = 0; c < s.F; c++) to.projection[a * s.F + c] = at.projection_grad[c * P + a];
    }
}

template <typename Real>
Real* after(Real* at, int64_t count) {
    return at ? at + count : nullptr;
}

}  // namespace

extern "C" {

// Floats of scratch that both need, and the floats of the kept features of a step.
int64_t foci_location_aware_scratch(int64_t S, int64_t A, int64_t F, int64_t W, int threads) {
    const Sizes s{0, 0, S, A, F, W};
    return Parameters::size(s) + threads * std::max(Forward(nullptr, s).size, Backward(nullptr, s).size);
}
int64_t foci_location_aware_kept(int64_t S, int64_t F) { return F * round_up<LINE>(S); }

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
    const Parameters shared(scratch, s, vector, filters, projection);
    const Options options{sharpening, smoothing != 0};
    float* rows = scratch + Parameters::size(s);
    const int64_t size = Forward(nullptr, s).size;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b++)
        forward_row(query + b * L * A, key + b * key_batch, after(mask, b * mask_batch), mask_step, previous + b * S,
                    shared, options, after(value, b * value_batch), V, s, Forward(rows + this_thread() * size, s),
                    weights + b * L * S, after(kept, b * L * F * s.cells()), after(slopes, b * L * S),
                    after(output, b * L * V));
}

// The gradients query_grad (B, L, A), key_grad (B, S, A), previous_grad (B, S), which may be null, and, for each row of
// the batch, vector_grads (B, A), projection_grads (B, A, F) and filter_grads (B, F, W). slopes is null for a softmax.
void foci_location_aware_backward(const float* grad, const float* query, const float* key, const float* previous,
                                  const float* vector, const float* filters, const float* projection,
                                  const float* weights, const float* kept, const float* slopes, int64_t B, int64_t L,
                                  int64_t S, int64_t A, int64_t F, int64_t W, float sharpening, float* scratch,
                                  float* query_grad, float* key_grad, float* previous_grad, float* vector_grads,
                                  float* filter_grads, float* projection_grads, int threads) {
    const Sizes s{B, L, S, A, F, W};
    const Parameters shared(scratch, s, vector, filters, projection);
    const Options options{sharpening, slopes != nullptr};
    float* rows = scratch + Parameters::size(s);
    const int64_t size = Backward(nullptr, s).size;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b++) {
        const RowGrads to{query_grad + b * L * A, key_grad + b * S * A, after(previous_grad, b * S),
                          vector_grads + b * A, projection_grads + b * A * F, filter_grads + b * F * W};
        backward_row(grad + b * L * S, query + b * L * A, key + b * S * A, previous + b * S, weights + b * L * S,
                     kept + b * L * F * s.cells(), after(slopes, b * L * S), shared, options, s,
                     Backward(rows + this_thread() * size, s), to);
    }
}

}  // extern "C"
