// Word-by-word attention, all steps of the batch in one call: forward and backward.
//
//     a_t = q_t + W r_{t−1}        α_t = softmax_j(vᵀ tanh(a_t + k_j))        r_t = Σ_j α_tj y_j + tanh(C r_{t−1})
//
// A step that does not exist (padding) has weights 0 and leaves r as it is; cells that are not valid have weight 0.
// A row of the batch is one task: its keys are prepared once for all steps (additive_cells.h). The backward gets what
// the forward kept (r and tanh(C r) of every step) and gives the gradients of a, of C r and of r at every step; the
// gradients of W, C and y are matrix products of these, which the caller computes.
//
// Plain C interface, float32, all tensors contiguous. Results do not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "additive_cells.h"
#include "threads.h"

namespace {

struct Sizes {
    int64_t B, R, S, D;  // batch, steps, cells, size of a vector
    int64_t P() const { return padded(D); }
    int64_t row() const { return row_width(D); }
    // Cells as whole vectors.
    int64_t cells() const { return round_up<CELL>(S); }
};

// Copies rows of D numbers to rows of P, the rest of each filled with zeros.
void pad_rows(const float* from, int64_t rows, const Sizes& s, float* to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++) {
        std::copy_n(from + i * s.D, s.D, to + i * stride);
        std::fill_n(to + i * stride + s.D, s.P() - s.D, 0.0f);
    }
}

// The same rows as columns: `to` has P rows of `stride` numbers, of which the first `rows` are written.
void turn_rows(const float* from, int64_t rows, const Sizes& s, float* to, int64_t stride) {
    std::fill_n(to, s.P() * stride, 0.0f);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t a = 0; a < s.D; a++) to[a * stride + i] = from[i * s.D + a];
}

// to += Σ_i x[i] · rows[i] over N vectors, whose sums stay in registers.
template <int N>
void add_block(const float* rows, int64_t stride, const float* x, int64_t count, float* to) {
    Vector sums[N];
    for (int n = 0; n < N; n++) sums[n] = load(to + n * LANES);
    for (int64_t i = 0; i < count; i++) {
        const Vector scale = all(x[i]);
        for (int n = 0; n < N; n++) sums[n] += scale * load(rows + i * stride + n * LANES);
    }
    for (int n = 0; n < N; n++) store(to + n * LANES, sums[n]);
}

// to += Σ_i x[i] · rows[i] over `size` numbers, a multiple of LANES: a product with a matrix, x on the left.
void add_rows(const float* rows, int64_t stride, const float* x, int64_t count, int64_t size, float* to) {
    int64_t a = 0;
    for (; a + 8 * LANES <= size; a += 8 * LANES) add_block<8>(rows + a, stride, x, count, to + a);
    switch ((size - a) / LANES) {
        case 7: return add_block<7>(rows + a, stride, x, count, to + a);
        case 6: return add_block<6>(rows + a, stride, x, count, to + a);
        case 5: return add_block<5>(rows + a, stride, x, count, to + a);
        case 4: return add_block<4>(rows + a, stride, x, count, to + a);
        case 3: return add_block<3>(rows + a, stride, x, count, to + a);
        case 2: return add_block<2>(rows + a, stride, x, count, to + a);
        case 1: return add_block<1>(rows + a, stride, x, count, to + a);
    }
}

void tanh_of(const float* x, int64_t P, float* to) {
    for (int64_t a = 0; a < P; a += LANES)
        store(to + a, all(1.0f) - all(2.0f) * exact_reciprocal(load(x + a), Vector{}));
}

// The softmax of the valid cells; the others, and all of them where none is valid, get 0.
void weigh(float* scores, const uint8_t* valid, int64_t S) {
    float top = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (int64_t j = 0; j < S; j++) {
        if (!valid[j]) continue;
        finite &= std::isfinite(scores[j]);
        top = std::max(top, scores[j]);
    }
    float sum = 0;
    if (finite) {
        constexpr float DEEPEST = -87.0f;  // e^x is a normal number down to here, and counts for nothing below
        for (int64_t j = 0; j < S; j += LANES) {
            const Vector x = load_some(scores + j, S - j) - all(top);
            store_some(scores + j, exponential(x < all(DEEPEST) ? all(DEEPEST) : x > all(0.0f) ? all(0.0f) : x), S - j);
        }
        for (int64_t j = 0; j < S; j++) sum += scores[j] = valid[j] ? scores[j] : 0.0f;
    } else {
        for (int64_t j = 0; j < S; j++) sum += scores[j] = valid[j] ? std::exp(scores[j] - top) : 0.0f;
    }
    const float scale = sum != 0 ? 1 / sum : 0.0f;  // NaN is not 0
    for (int64_t j = 0; j < S; j++) scores[j] *= valid[j] ? scale : 0.0f;
}

// What a thread works in: one row of the batch at a time.
struct Scratch {
    float *keys, *raw_keys, *values, *turned_values, *query, *raw_query, *memory, *next, *carried, *key_grads, *vector_grad, *scores;

    static int64_t size(const Sizes& s) {
        return s.S * (2 * s.row() + 2 * s.P()) + s.P() * s.cells() + 2 * s.row() + 4 * s.P() + s.cells();
    }

    Scratch(float* at, const Sizes& s) {
        const auto take = [&](int64_t count) { return (at += count) - count; };
        keys = take(s.S * s.row());
        key_grads = take(s.S * s.row());
        raw_keys = take(s.S * s.P());
        values = take(s.S * s.P());
        turned_values = take(s.P() * s.cells());
        query = take(s.row());
        vector_grad = take(s.row());
        raw_query = take(s.P());
        memory = take(s.P());
        next = take(s.P());
        carried = take(s.P());
        scores = take(s.cells());
    }
};

struct Weights {
    const float *vector, *to_score, *carry;      // padded: P numbers, and D rows of P
    const float *turned_to_score, *turned_carry;  // the matrices' columns
};

int64_t weights_size(const Sizes& s) { return s.P() + 2 * s.D * s.P() + 2 * s.P() * s.P(); }

Weights pad_weights(const float* vector, const float* to_score, const float* carry, const Sizes& s, float* to) {
    const auto take = [&](int64_t count) { return (to += count) - count; };
    float* v = take(s.P());
    float *w = take(s.D * s.P()), *c = take(s.D * s.P());
    float *turned_w = take(s.P() * s.P()), *turned_c = take(s.P() * s.P());
    pad_rows(vector, 1, s, v, s.P());
    pad_rows(to_score, s.D, s, w, s.P());
    pad_rows(carry, s.D, s, c, s.P());
    turn_rows(to_score, s.D, s, turned_w, s.P());
    turn_rows(carry, s.D, s, turned_c, s.P());
    return {v, w, c, turned_w, turned_c};
}

void prepare_keys(const float* key, const Sizes& s, const Scratch& at) {
    for (int64_t j = 0; j < s.S; j++) prepare_row(key + j * s.D, s.D, at.keys + j * s.row());
}

// Prepares a_t = q_t + W r and returns whether its cells, with these keys, must be exact.
bool prepare_query(const float* query, const Weights& weights, const Sizes& s, bool wild_keys, const Scratch& at) {
    pad_rows(query, 1, s, at.raw_query, s.P());
    add_rows(weights.turned_to_score, s.P(), at.memory, s.D, s.P(), at.raw_query);
    prepare_row(at.raw_query, s.D, at.query);
    return wild_keys || any_wild(at.query, 1, s.D);
}

void forward_row(const float* query, const uint8_t* exists, const float* value, const float* key, const uint8_t* valid,
                 const Weights& weights, double sum_v, const Sizes& s, const Scratch& at, float* memories,
                 float* carried, float* found) {
    const int64_t P = s.P(), row = s.row();
    prepare_keys(key, s, at);
    pad_rows(value, s.S, s, at.values, P);
    const bool wild_keys = any_wild(at.keys, s.S, s.D);
    pad_rows(memories, 1, s, at.memory, P);  // the first of R + 1 is given
    for (int64_t t = 0; t < s.R; t++) {
        float* weight = found + t * s.S;
        float* kept = carried + t * s.D;
        if (exists[t]) {
            const bool exact = prepare_query(query + t * s.D, weights, s, wild_keys, at);
            for (int64_t j = 0; j < s.S; j += TILE) {
                const int64_t count = std::min(TILE, s.S - j);
                if (exact)
                    for (int64_t i = j; i < j + count; i++)
                        weight[i] = exact_score(at.raw_query, key + i * s.D, weights.vector, s.D);
                else
                    score_keys(at.query, at.keys + j * row, count, row, weights.vector, P, weight + j);
            }
            for (int64_t j = 0; j < s.S; j++) weight[j] = static_cast<float>(sum_v - 2.0 * weight[j]);
            weigh(weight, valid, s.S);
            std::fill_n(at.next, P, 0.0f);
            add_rows(weights.turned_carry, P, at.memory, s.D, P, at.next);
            tanh_of(at.next, P, at.carried);
            std::copy_n(at.carried, P, at.memory);
            add_rows(at.values, P, weight, s.S, P, at.memory);
            std::copy_n(at.carried, s.D, kept);
        } else {
            std::fill_n(weight, s.S, 0.0f);
            std::fill_n(kept, s.D, 0.0f);
        }
        std::copy_n(at.memory, s.D, memories + (t + 1) * s.D);
    }
}

struct Grads {
    float *query, *carried, *memory, *start, *key, *vector;
};

// `weights_grad` may be null; `memory_grad` is the gradient of the last memory.
void backward_row(const float* weights_grad, const float* memory_grad, const float* query, const uint8_t* exists,
                  const float* value, const float* key, const Weights& weights, const float* memories,
                  const float* carried, const float* found, const Sizes& s, const Scratch& at, const Grads& grads) {
    const int64_t P = s.P(), row = s.row();
    prepare_keys(key, s, at);
    turn_rows(value, s.S, s, at.turned_values, s.cells());
    const bool wild_keys = any_wild(at.keys, s.S, s.D);
    bool raw_keys = false;
    std::fill_n(at.key_grads, s.S * row, 0.0f);
    std::fill_n(at.vector_grad, row, 0.0f);
    float* grad = at.next;  // of r_t
    pad_rows(memory_grad, 1, s, grad, P);
    for (int64_t t = s.R - 1; t >= 0; t--) {
        float* query_grad = grads.query + t * s.D;
        float* carried_grad = grads.carried + t * s.D;
        if (!exists[t]) {
            std::fill_n(query_grad, s.D, 0.0f);
            std::fill_n(carried_grad, s.D, 0.0f);
            std::fill_n(grads.memory + t * s.D, s.D, 0.0f);
            continue;
        }
        std::copy_n(grad, s.D, grads.memory + t * s.D);
        const float* weight = found + t * s.S;
        std::fill_n(at.scores, s.cells(), 0.0f);
        if (weights_grad) std::copy_n(weights_grad + t * s.S, s.S, at.scores);
        add_rows(at.turned_values, s.cells(), grad, s.D, s.cells(), at.scores);
        float mean = 0;
        for (int64_t j = 0; j < s.S; j++) mean += weight[j] == 0 ? 0.0f : weight[j] * at.scores[j];
        for (int64_t j = 0; j < s.S; j++) at.scores[j] = weight[j] == 0 ? 0.0f : weight[j] * (at.scores[j] - mean);

        pad_rows(memories + t * s.D, 1, s, at.memory, P);
        const bool exact = prepare_query(query + t * s.D, weights, s, wild_keys, at);
        float* cells = at.carried;
        std::fill_n(cells, P, 0.0f);
        if (exact) {
            if (!raw_keys) pad_rows(key, s.S, s, at.raw_keys, P);
            raw_keys = true;
            gradient_rows<true>(at.scores, 1, s.S, s.S, at.raw_query, at.raw_keys, P, row, P, cells, at.key_grads,
                                at.vector_grad);
        } else {
            gradient_rows<false>(at.scores, 1, s.S, s.S, at.query, at.keys, row, row, P, cells, at.key_grads,
                                 at.vector_grad);
        }
        for (int64_t a = 0; a < s.D; a++) {
            query_grad[a] = 4 * weights.vector[a] * cells[a];
            const float tanh = carried[t * s.D + a];
            carried_grad[a] = grad[a] * (1 - tanh * tanh);
        }
        std::fill_n(grad, P, 0.0f);
        add_rows(weights.to_score, P, query_grad, s.D, P, grad);
        add_rows(weights.carry, P, carried_grad, s.D, P, grad);
    }
    std::copy_n(grad, s.D, grads.start);
    for (int64_t a = 0; a < s.D; a++) grads.vector[a] = -2 * at.vector_grad[a];
    for (int64_t j = 0; j < s.S; j++)
        for (int64_t a = 0; a < s.D; a++)
            grads.key[j * s.D + a] = 4 * weights.vector[a] * at.key_grads[j * row + a];
}

}  // namespace

extern "C" {

// Floats of scratch that both need.
int64_t foci_word_by_word_scratch(int64_t S, int64_t D, int threads) {
    const Sizes s{0, 0, S, D};
    return weights_size(s) + threads * Scratch::size(s);
}

// query (B, R, D), exists (B, R), value and key (B, S, D), valid (B, S), vector (D), to_score and carry (D, D);
// memories (B, R + 1, D), of which the first are given; carried (B, R, D), weights (B, R, S).
void foci_word_by_word_forward(const float* query, const uint8_t* exists, const float* value, const float* key,
                               const uint8_t* valid, const float* vector, const float* to_score, const float* carry,
                               int64_t B, int64_t R, int64_t S, int64_t D, float* scratch, float* memories,
                               float* carried, float* weights, int threads) {
    const Sizes s{B, R, S, D};
    const Weights padded_weights = pad_weights(vector, to_score, carry, s, scratch);
    double sum_v = 0;
    for (int64_t a = 0; a < D; a++) sum_v += vector[a];
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b++)
        forward_row(query + b * R * D, exists + b * R, value + b * S * D, key + b * S * D, valid + b * S,
                    padded_weights, sum_v, s,
                    Scratch(scratch + weights_size(s) + this_thread() * Scratch::size(s), s),
                    memories + b * (R + 1) * D, carried + b * R * D, weights + b * R * S);
}

// The gradients query_grad, carried_grad and memory_grads (B, R, D), start_grad (B, D), key_grad (B, S, D) and, for each
// row of the batch, vector_grads (B, D). weights_grad may be null.
void foci_word_by_word_backward(const float* weights_grad, const float* memory_grad, const float* query,
                                const uint8_t* exists, const float* value, const float* key, const float* vector,
                                const float* to_score, const float* carry, const float* memories,
                                const float* carried, const float* weights, int64_t B, int64_t R, int64_t S, int64_t D,
                                float* scratch, float* query_grad, float* carried_grad, float* memory_grads,
                                float* start_grad, float* key_grad, float* vector_grads, int threads) {
    const Sizes s{B, R, S, D};
    const Weights padded_weights = pad_weights(vector, to_score, carry, s, scratch);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b++)
        backward_row(weights_grad ? weights_grad + b * R * S : nullptr, memory_grad + b * D, query + b * R * D,
                     exists + b * R, value + b * S * D, key + b * S * D, padded_weights, memories + b * (R + 1) * D,
                     carried + b * R * D, weights + b * R * S, s,
                     Scratch(scratch + weights_size(s) + this_thread() * Scratch::size(s), s),
                     {query_grad + b * R * D, carried_grad + b * R * D, memory_grads + b * R * D, start_grad + b * D,
                      key_grad + b * S * D, vector_grads + b * D});
}

}  // extern "C"
