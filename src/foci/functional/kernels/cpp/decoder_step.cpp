// One step of a Transformer's decoder for N hypotheses, all layers in one call.
//
//     x ← x + W_o attend(norm(x))        over the positions of the hypothesis's past, the new one included
//     x ← x + W_o attend(norm(x))        over the source's positions, if there is a source
//     x ← x + W_2 f(W_1 norm(x))         logits = W norm(x)
//
// Row b · K + k is hypothesis k of source b. A matrix is packed: panels of WIDTH outputs, each with its weights input by
// input, so that a product reads it once from the first number to the last for a block of rows. The order in which a
// number is summed depends on neither the number of rows nor that of threads.
//
// Plain C interface, float32, all tensors contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "floats.h"
#include "scratch.h"
#include "threads.h"

namespace {

constexpr int VECTORS = 4;  // of a panel
constexpr int64_t WIDTH = VECTORS * LANES;
#ifdef __AVX512F__
constexpr int ROWS = 6;  // of a block: ROWS · VECTORS sums, VECTORS weights and a number of x fit the registers
#else
constexpr int ROWS = 2;
#endif
constexpr int64_t SMALL = 1 << 15;  // products of a panel below which a thread is not worth waking

enum Activation { NONE, RELU, SQUARED_RELU, GELU };

extern "C" {

struct FociProduct {
    const float *weight, *bias;  // the bias may be missing
    int64_t inputs, outputs;
};

struct FociNorm {
    const float *gain, *shift;  // each may be missing
    int64_t centered;            // LayerNorm, else RMSNorm
    float epsilon;
};

struct FociLayer {
    FociNorm self_norm, source_norm, inner_norm;
    FociProduct project, join, query, join_source, inner, outer;
    float *keys, *values;  // (B, H, room, size)
    int64_t room;
    const float *source_keys, *source_values;  // (B, H, S, size); missing without a source
};

struct FociStep {
    int64_t layers, sources, hypotheses, heads, size;
    int64_t past_length, source_length;  // of a source's past, the new ones included, and of the source itself
    int64_t norm_first, activation;
    const float* turn;         // (size / 2, 2): cosine and sine of each pair's rotation; or missing
    const uint8_t* path;       // (N, past_length), which of them each hypothesis may read; or missing
    const int64_t* positions;  // (N, past_length), for ALiBi; or missing
    const float* slopes;       // (H)
    const uint8_t* valid;      // (B, S), or missing
    int64_t position;          // of the new ones
    float unit_epsilon;        // of the norms of query and key; negative: there are none
    float cap;                 // of the logits; 0: none
    FociNorm norm;             // after the last layer
    int64_t has_norm;
    FociProduct output;
    int64_t threads;
};
}

// --- numbers

Vector error_complement(Vector a) {  // e^(a²) erfc(a) for a ≥ 0, relative error below 1e-7: a fit in t = 1 / (1 + 0.33 a)
    const Vector t = all(1.0f) / (all(1.0f) + all(0.33f) * a);
    Vector p = all(-0.135929063f);
    p = p * t + all(0.46268937f);
    p = p * t + all(-0.355440974f);
    p = p * t + all(0.412543565f);
    p = p * t + all(0.0450095683f);
    p = p * t + all(0.20192416f);
    p = p * t + all(0.182837188f);
    p = p * t + all(0.186366111f);
    return p * t;
}

Vector gelu(Vector x) {  // x Φ(x)
    constexpr float FAR = 9.3f;  // beyond, Φ counts as 0 or 1
    const Vector size = x < all(0.0f) ? -x : x;
    const Vector a = all(0.707106781f) * (size < all(FAR) ? size : all(FAR));
    const Vector tail = all(0.5f) * error_complement(a) * exponential(-a * a);
    const Vector below = size < all(FAR) ? tail : Vector{};
    return x * (x < all(0.0f) ? below : all(1.0f) - below);  // NaN stays
}

Vector activate(Vector x, int64_t kind) {
    if (kind == NONE) return x;
    if (kind == GELU) return gelu(x);
    const Vector positive = x < all(0.0f) ? all(0.0f) : x;  // NaN stays
    return kind == RELU ? positive : positive * positive;
}

Vector pick(Vector a, Vector b, bool odd) {  // every second number of a, then of b
#ifdef __clang__
    if constexpr (LANES == 16)
        return odd ? __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
                   : __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    else
        return odd ? __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
                   : __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    Integers places;
    for (int64_t lane = 0; lane < LANES; lane++) places[lane] = int32_t(2 * lane + odd);
    return __builtin_shuffle(a, b, places);
#endif
}

Vector sum_each(Vector (&sums)[LANES]) {  // lane i is the sum of the lanes of sums[i]
#pragma GCC unroll 4
    for (int64_t count = LANES / 2; count; count /= 2)
#pragma GCC unroll 8
        for (int64_t i = 0; i < count; i++)
            sums[i] = pick(sums[2 * i], sums[2 * i + 1], false) + pick(sums[2 * i], sums[2 * i + 1], true);
    return sums[0];
}

// --- products

template <int R>
void multiply_block(const float* x, int64_t stride, const float* weight, int64_t inputs, Vector (&sums)[R][VECTORS]) {
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = Vector{};
    for (int64_t i = 0; i < inputs; i++, weight += WIDTH) {
        Vector w[VECTORS];
        for (int v = 0; v < VECTORS; v++) w[v] = load(weight + v * LANES);
        for (int r = 0; r < R; r++) {
            const Vector each = all(x[r * stride + i]);
            for (int v = 0; v < VECTORS; v++) sums[r][v] += each * w[v];
        }
    }
}

// to = f(x Wᵀ + b) for R rows and one panel, added to what is there if `add`.
template <int R>
void write_block(const float* x, const FociProduct& product, int64_t panel, int64_t kind, bool add, float* to) {
    Vector sums[R][VECTORS];
    multiply_block<R>(x, product.inputs, product.weight + panel * product.inputs * WIDTH, product.inputs, sums);
    for (int v = 0; v < VECTORS; v++) {
        const int64_t first = panel * WIDTH + v * LANES, count = std::min(LANES, product.outputs - first);
        if (count <= 0) return;
        const Vector bias = product.bias ? load_some(product.bias + first, count) : Vector{};
        for (int r = 0; r < R; r++) {
            float* at = to + r * product.outputs + first;
            const Vector found = activate(sums[r][v] + bias, kind);
            store_some(at, add ? load_some(at, count) + found : found, count);
        }
    }
}

void write_panel(const float* x, int64_t rows, const FociProduct& product, int64_t panel, int64_t kind, bool add, float* to) {
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    for (int64_t block = 0, row = 0; block < blocks; block++) {
        const int64_t count = (rows - row) / (blocks - block);  // blocks of about one size
        const float* from = x + row * product.inputs;
        float* here = to + row * product.outputs;
        switch (count) {
#ifdef __AVX512F__
            case 6: write_block<6>(from, product, panel, kind, add, here); break;
            case 5: write_block<5>(from, product, panel, kind, add, here); break;
            case 4: write_block<4>(from, product, panel, kind, add, here); break;
            case 3: write_block<3>(from, product, panel, kind, add, here); break;
#endif
            case 2: write_block<2>(from, product, panel, kind, add, here); break;
            default: write_block<1>(from, product, panel, kind, add, here);
        }
        row += count;
    }
}

void multiply(const float* x, int64_t rows, const FociProduct& product, int64_t kind, bool add, float* to, int64_t threads) {
    const int64_t panels = (product.outputs + WIDTH - 1) / WIDTH;
    const bool parallel = threads > 1 && rows * product.inputs * WIDTH * panels > SMALL * threads;
#pragma omp parallel for schedule(static) num_threads(int(threads)) if (parallel)
    for (int64_t panel = 0; panel < panels; panel++) write_panel(x, rows, product, panel, kind, add, to);
}

// --- norms and rotations

void normalize(const float* x, int64_t size, const FociNorm& norm, float* to) {
    float mean = 0;
    if (norm.centered) {
        Vector sum{};
        for (int64_t i = 0; i < size; i += LANES) sum += load_some(x + i, size - i);
        mean = sum_lanes<float>(sum) / size;
    }
    Vector squares{};
    for (int64_t i = 0; i < size; i += LANES) {
        const Vector gap = load_some(x + i, size - i, mean) - all(mean);
        squares += gap * gap;
    }
    const float scale = 1 / std::sqrt(sum_lanes<float>(squares) / size + norm.epsilon);
    for (int64_t i = 0; i < size; i += LANES) {
        Vector y = (load_some(x + i, size - i) - all(mean)) * all(scale);
        if (norm.gain) y *= load_some(norm.gain + i, size - i);
        if (norm.shift) y += load_some(norm.shift + i, size - i);
        store_some(to + i, y, size - i);
    }
}

void normalize_rows(const float* x, int64_t rows, int64_t size, const FociNorm& norm, float* to) {
    for (int64_t row = 0; row < rows; row++) normalize(x + row * size, size, norm, to + row * size);
}

void prepare_head(float* x, const FociStep& s) {  // the norm and the rotation of a query or key
    if (s.unit_epsilon >= 0) normalize(x, s.size, FociNorm{nullptr, nullptr, 0, s.unit_epsilon}, x);
    if (!s.turn) return;
    for (int64_t i = 0; i < s.size; i += 2) {
        const float cosine = s.turn[i], sine = s.turn[i + 1], even = x[i], odd = x[i + 1];
        x[i] = even * cosine - odd * sine;
        x[i + 1] = even * sine + odd * cosine;
    }
}

// --- attention

// The scores of LANES keys, of which `count` exist.
Vector score_keys(const float* query, const float* keys, int64_t count, int64_t size) {
    Vector sums[LANES];
    if (count >= LANES && size % LANES == 0) {
        for (int64_t c = 0; c < LANES; c++) sums[c] = Vector{};
        for (int64_t i = 0; i < size; i += LANES) {
            const Vector q = load(query + i);
            for (int64_t c = 0; c < LANES; c++) sums[c] += q * load(keys + c * size + i);
        }
    } else {
        for (int64_t c = 0; c < LANES; c++) {
            sums[c] = Vector{};
            for (int64_t i = 0; c < count && i < size; i += LANES)
                sums[c] += load_some(query + i, size - i) * load_some(keys + c * size + i, size - i);
        }
    }
    return sum_each(sums);
}

// Exponentials relative to the largest score, 0 for closed positions (−∞); returns their sum.
float exponentials(float* scores, int64_t length) {
    float top = -std::numeric_limits<float>::infinity();
    bool known = true;
    for (int64_t j = 0; j < length; j++) {
        known &= scores[j] < std::numeric_limits<float>::infinity();  // neither NaN nor ∞
        top = std::max(top, scores[j]);
    }
    float sum = 0;
    if (!known) {
        for (int64_t j = 0; j < length; j++) sum += scores[j] = std::exp(scores[j] - top);
        return sum;
    }
    if (top == -std::numeric_limits<float>::infinity()) {
        std::fill_n(scores, length, 0.0f);
        return 0;
    }
    constexpr float DEEPEST = -87.0f;  // e^x is a normal number down to here, and counts for nothing below
    Vector sums{};
    for (int64_t j = 0; j < length; j += LANES) {
        const Vector x = load_some(scores + j, length - j, DEEPEST + top - 1) - all(top);
        const Vector found = exponential(x < all(DEEPEST) ? all(DEEPEST) : x);
        const Vector kept = x < all(DEEPEST) ? Vector{} : found;
        sums += kept;
        store_some(scores + j, kept, length - j);
    }
    return sum_lanes<float>(sums);
}

// to = Σ_j weights[j] · values[j] · scale over V vectors of each position, two positions at a time.
template <int V>
void read_block(const float* weights, const float* values, int64_t length, int64_t size, float scale, float* to) {
    Vector even[V], odd[V];
    for (int v = 0; v < V; v++) even[v] = odd[v] = Vector{};
    int64_t j = 0;
    for (; j + 2 <= length; j += 2) {
        const Vector first = all(weights[j]), second = all(weights[j + 1]);
        for (int v = 0; v < V; v++) even[v] += first * load(values + j * size + v * LANES);
        for (int v = 0; v < V; v++) odd[v] += second * load(values + (j + 1) * size + v * LANES);
    }
    if (j < length)
        for (int v = 0; v < V; v++) even[v] += all(weights[j]) * load(values + j * size + v * LANES);
    for (int v = 0; v < V; v++) store(to + v * LANES, (even[v] + odd[v]) * all(scale));
}

void read_values(const float* weights, const float* values, int64_t length, int64_t size, float scale, float* to) {
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES) read_block<4>(weights, values + i, length, size, scale, to + i);
    for (; i + 2 * LANES <= size; i += 2 * LANES) read_block<2>(weights, values + i, length, size, scale, to + i);
    for (; i + LANES <= size; i += LANES) read_block<1>(weights, values + i, length, size, scale, to + i);
    if (i == size) return;
    Vector sum{};
    for (int64_t j = 0; j < length; j++) sum += all(weights[j]) * load_some(values + j * size + i, size - i);
    store_some(to + i, sum * all(scale), size - i);
}

struct Past {  // what a query reads
    const float *keys, *values;
    int64_t length;
    const uint8_t* open;       // or missing
    const int64_t* positions;  // or missing
    float slope;
};

void attend(const FociStep& s, const float* query, const Past& past, float* scores, float* to) {
    const float scale = 1 / std::sqrt(float(s.size));
    for (int64_t j = 0; j < past.length; j += LANES) {
        const int64_t count = std::min(LANES, past.length - j);
        store_some(scores + j, score_keys(query, past.keys + j * s.size, count, s.size) * all(scale), count);
    }
    if (past.positions)
        for (int64_t j = 0; j < past.length; j++) scores[j] += past.slope * float(past.positions[j] - s.position);
    if (past.open)
        for (int64_t j = 0; j < past.length; j++)
            if (!past.open[j]) scores[j] = -std::numeric_limits<float>::infinity();
    const float sum = exponentials(scores, past.length);
    read_values(scores, past.values, past.length, s.size, sum != 0 ? 1 / sum : 0.0f, to);  // NaN is not 0
}

// --- the step

int64_t scores_size(const FociStep& s) { return round_up<LANES>(std::max(s.past_length, s.source_length)); }

struct Scratch {
    float *normed, *projected, *read, *inner, *scores;
    int64_t size;

    Scratch(float* at, const FociStep& s, int64_t hidden) {
        Pieces pieces{at};
        const int64_t rows = s.sources * s.hypotheses, dim = s.heads * s.size;
        normed = pieces.take(rows * dim);
        projected = pieces.take(rows * 3 * dim);
        read = pieces.take(rows * dim);
        inner = pieces.take(rows * hidden);
        scores = pieces.take(s.threads * scores_size(s));
        size = pieces.total;
    }
};

template <typename Past>
void attend_all(const FociStep& s, const float* queries, int64_t stride, Past past, const Scratch& at) {
    const int64_t rows = s.sources * s.hypotheses, dim = s.heads * s.size;
    const bool parallel = s.threads > 1 && rows * dim * std::max(s.past_length, s.source_length) > SMALL * s.threads;
#pragma omp parallel for schedule(static) num_threads(int(s.threads)) if (parallel)
    for (int64_t task = 0; task < rows * s.heads; task++) {
        const int64_t row = task / s.heads, head = task % s.heads;
        float* scores = at.scores + (parallel ? this_thread() : 0) * scores_size(s);
        attend(s, queries + row * stride + head * s.size, past(row, head), scores, at.read + row * dim + head * s.size);
    }
}

void attend_to_past(const FociStep& s, const FociLayer& layer, const Scratch& at) {
    const int64_t rows = s.sources * s.hypotheses, dim = s.heads * s.size, begin = s.past_length - s.hypotheses;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t source = row / s.hypotheses, hypothesis = row % s.hypotheses;
        for (int64_t head = 0; head < s.heads; head++) {
            float* query = at.projected + row * 3 * dim + head * s.size;
            const int64_t place = ((source * s.heads + head) * layer.room + begin + hypothesis) * s.size;
            prepare_head(query, s);
            prepare_head(query + dim, s);
            std::copy_n(query + dim, s.size, layer.keys + place);
            std::copy_n(query + 2 * dim, s.size, layer.values + place);
        }
    }
    attend_all(s, at.projected, 3 * dim, [&](int64_t row, int64_t head) {
        const int64_t first = (row / s.hypotheses * s.heads + head) * layer.room * s.size;
        return Past{layer.keys + first, layer.values + first, s.past_length, after(s.path, row * s.past_length),
                    after(s.positions, row * s.past_length), s.positions ? s.slopes[head] : 0.0f};
    }, at);
}

void attend_to_source(const FociStep& s, const FociLayer& layer, const float* queries, const Scratch& at) {
    attend_all(s, queries, s.heads * s.size, [&](int64_t row, int64_t head) {
        const int64_t source = row / s.hypotheses, first = (source * s.heads + head) * s.source_length * s.size;
        return Past{layer.source_keys + first, layer.source_values + first, s.source_length,
                    after(s.valid, source * s.source_length), nullptr, 0.0f};
    }, at);
}

bool reads_nothing(const FociStep& s, int64_t source) {
    const uint8_t* open = after(s.valid, source * s.source_length);
    return open ? std::none_of(open, open + s.source_length, [](uint8_t one) { return one; }) : s.source_length == 0;
}

}  // namespace

extern "C" {

int64_t foci_decoder_step_width() { return WIDTH; }

int64_t foci_decoder_step_scratch(const FociStep* step, int64_t hidden) { return Scratch(nullptr, *step, hidden).size; }

// Packs a matrix (outputs, inputs) into whole panels; outputs that do not exist have weights 0.
void foci_decoder_step_pack(const float* weight, int64_t outputs, int64_t inputs, float* to) {
    for (int64_t first = 0; first < outputs; first += WIDTH)
        for (int64_t i = 0; i < inputs; i++)
            for (int64_t o = first; o < first + WIDTH; o++) *to++ = o < outputs ? weight[o * inputs + i] : 0.0f;
}

// x (N, D) are the embedded tokens, which are overwritten; the last layer's queries of the source, if there is one,
// are written to `queries` (N, D); logits (N, V).
void foci_decoder_step_run(
    const FociStep* step, const FociLayer* layers, float* x, float* scratch, int64_t hidden, float* queries, float* logits) {
    const FociStep& s = *step;
    const int64_t rows = s.sources * s.hypotheses, dim = s.heads * s.size;
    const Scratch at(scratch, s, hidden);
    const auto before = [&](const FociNorm& norm) {
        if (!s.norm_first) return (const float*)x;
        normalize_rows(x, rows, dim, norm, at.normed);
        return (const float*)at.normed;
    };
    const auto after = [&](const FociNorm& norm) {
        if (!s.norm_first) normalize_rows(x, rows, dim, norm, x);
    };
    for (int64_t number = 0; number < s.layers; number++) {
        const FociLayer& layer = layers[number];
        multiply(before(layer.self_norm), rows, layer.project, NONE, false, at.projected, s.threads);
        attend_to_past(s, layer, at);
        multiply(at.read, rows, layer.join, NONE, true, x, s.threads);
        after(layer.self_norm);
        if (layer.source_keys) {
            multiply(before(layer.source_norm), rows, layer.query, NONE, false, queries, s.threads);
            attend_to_source(s, layer, queries, at);
            // A hypothesis whose source has no position to read gets 0, not the bias of the product.
            multiply(at.read, rows, layer.join_source, NONE, false, at.projected, s.threads);
            for (int64_t row = 0; row < rows; row++)
                if (!reads_nothing(s, row / s.hypotheses))
                    for (int64_t i = 0; i < dim; i++) x[row * dim + i] += at.projected[row * dim + i];
            after(layer.source_norm);
        }
        multiply(before(layer.inner_norm), rows, layer.inner, s.activation, false, at.inner, s.threads);
        multiply(at.inner, rows, layer.outer, NONE, true, x, s.threads);
        after(layer.inner_norm);
    }
    if (s.has_norm) normalize_rows(x, rows, dim, s.norm, x);
    multiply(x, rows, s.output, NONE, false, logits, s.threads);
    if (s.cap > 0)
        for (int64_t i = 0; i < rows * s.output.outputs; i++) logits[i] = s.cap * std::tanh(logits[i] / s.cap);
}
}
