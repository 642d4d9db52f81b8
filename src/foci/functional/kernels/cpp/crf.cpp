// The linear-chain CRF: log Z or log p(tags) with their gradients, the k best sequences, and the probability of every
// span.
//
//     a_t(j)   = Σ_i a_t-1(i)·e^{A_ij}·e^{x_t(j)},   a_1 = e^{start + x_1},   Z = Σ_j a_T(j)·e^{end_j}
//     b_t-1(i) = Σ_j e^{A_ij}·e^{x_t(j)}·b_t(j),     b_T = e^{end}
//     ∂ log Z/∂x_t(j) = a_t(j)·b_t(j) / Σ,           ∂ log Z/∂A_ij = Σ_t a_t-1(i)·e^{A_ij}·e^{x_t(j)}·b_t(j) / Σ
//
// All arithmetic is in double, for tensors of any dtype. Two methods compute the same numbers:
//
// - by weights: transitions are exponentiated once, emissions once per step, each divided by its largest (so that
//   all lie in 0..1), and a and b are kept near 1 by powers of two. Weights below e^-DEPTH are dropped, and a row
//   uses this method only if the dropped weights are negligible; see `total_by_weights`.
// - by scores: everything stays a logarithm, at the cost of K² exponentials per step. It is correct for any scores.
//
// Masked steps are never read. -inf is a weight of 0. A row that is impossible has -inf and no gradient; NaN and
// +inf give NaN. Plain C interface; sums are taken in an order that does not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#define VECTOR_BYTES 32
#include "threads.h"
#include "vectors.h"

namespace {

constexpr int64_t LANES = LANES_OF<double>;
using Vector = VectorOf<double>;
using Integers = VectorOf<int64_t>;
using Bits = VectorOf<uint64_t>;

constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr double DEPTH = 200;        // three factors of e^-200 are still a normal double
constexpr double TINY = 0x1p-288;    // about e^-200
constexpr double UNKNOWN = std::numeric_limits<double>::quiet_NaN();
constexpr double LN2 = 0.69314718055994530942;
constexpr int64_t BIAS = 1023;       // of a double's exponent
constexpr double NEGLIGIBLE = -40;   // e^-40 of the whole is below double's precision
constexpr int64_t STEPS = 4;         // steps whose transitions are counted together
constexpr int64_t GROUPS = 32;       // parts, at most, in which the rows' transitions are counted
constexpr int64_t COUNTS = 1 << 22;  // doubles, roughly, that these parts may take

enum Way : uint8_t { NO_GRADIENT = 0, BY_WEIGHTS = 1, BY_SCORES = 2 };

typedef float Narrow __attribute__((vector_size(LANES * sizeof(float))));

Vector widen(const double* from) { return load(from); }
Vector widen(const float* from) {
    Narrow x;
    std::memcpy(&x, from, sizeof x);
    return __builtin_convertvector(x, Vector);
}

void narrow(double* to, Vector x) { store(to, x); }
void narrow(float* to, Vector x) {
    const Narrow rounded = __builtin_convertvector(x, Narrow);
    std::memcpy(to, &rounded, sizeof rounded);
}

template <typename Real>
void add(const Real* from, int64_t count, double* to) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) store(to + j, load(to + j) + widen(from + j));
    for (; j < count; j++) to[j] += from[j];
}

Vector larger(Vector x, Vector y) { return x > y ? x : y; }
Vector largest_lane(Vector x) {  // in every lane
    x = larger(x, Vector{x[2], x[3], x[0], x[1]});
    return larger(x, Vector{x[1], x[0], x[3], x[2]});
}
bool any_lane(Integers x) { return (x[0] | x[1] | x[2] | x[3]) != 0; }

Vector largest(const double* x, int64_t W) {
    Vector top = load(x);
    for (int64_t j = LANES; j < W; j += LANES) top = larger(load(x + j), top);
    return largest_lane(top);
}

// e^x to about one unit in the last place, for |x| up to 700; NaN for NaN.
Vector tame_exponential(Vector x) {
    const Vector shift = all(0x1.8p52 + 1023);  // adding it rounds to a whole number, kept in the low bits, biased
    const Vector shifted = x * all(0x1.71547652b82fep0) + shift;
    const Vector n = shifted - shift;
    const Vector f = (x - n * all(0x1.62e42fefa3800p-1)) - n * all(0x1.ef35793c76730p-45);  // x − n·ln 2
    // Interpolates e^f at Chebyshev's nodes; in pairs, so that few operations wait for one another.
    const Vector f2 = f * f, f4 = f2 * f2;
    const Vector p01 = all(1.0) + f, p23 = all(0x1.0000000000011p-1) + all(0x1.555555555555ap-3) * f;
    const Vector p45 = all(0x1.555555554f000p-5) + all(0x1.111111110f1e5p-7) * f;
    const Vector p67 = all(0x1.6c16c18826db1p-10) + all(0x1.a01a01b15de9dp-13) * f;
    const Vector p89 = all(0x1.a01991399f987p-16) + all(0x1.71ddf52ded199p-19) * f;
    const Vector pab = all(0x1.28b46faf8c24cp-22) + all(0x1.af639fa6e1b0bp-26) * f;
    const Vector p = (p01 + p23 * f2) + ((p45 + p67 * f2) + (p89 + pab * f2) * f4) * f4;
    return p * (Vector)((Bits)shifted << 52);
}

// The same for any x up to 700: 0 below -700, and for -inf.
Vector exponential(Vector x) { return x < all(-700.0) ? Vector{} : tame_exponential(x); }

double exponential(double x) { return exponential(all(x))[0]; }

// The power of two 2^-n for 2^n ≤ x < 2^(n+1), a normal number; n, biased, is added to `exponents`.
Vector scale_of(Vector x, Integers& exponents) {
    const Integers exponent = (Integers)x & (Integers)all(HUGE_VAL);
    exponents += (Integers)((Bits)exponent >> 52);
    return (Vector)((Integers)all(0x1p1023) - exponent);
}

int64_t padded(int64_t K) { return round_up<LANES>(K); }

// Calls block(count, first) for as many vectors of W at a time as the registers hold; count is a constant.
template <typename Block>
void in_blocks(int64_t W, Block block) {
    int64_t j = 0;
    for (; j + 6 * LANES <= W; j += 6 * LANES) block(std::integral_constant<int, 6>(), j);
    switch ((W - j) / LANES) {
        case 5: return block(std::integral_constant<int, 5>(), j);
        case 4: return block(std::integral_constant<int, 4>(), j);
        case 3: return block(std::integral_constant<int, 3>(), j);
        case 2: return block(std::integral_constant<int, 2>(), j);
        case 1: return block(std::integral_constant<int, 1>(), j);
    }
}

// The loops over a block's vectors must be unrolled early, or GCC keeps the vectors in memory.
#define UNROLLED _Pragma("GCC unroll 6")

// out[j] = Σ_i x[i]·matrix[i, j]; in two sums, so that fewer additions wait for the one before.
template <int count>
void multiply_block(const double* x, const double* matrix, int64_t K, int64_t W, double* out) {
    Vector even[count], odd[count];
    const double* row = matrix;
    UNROLLED for (int v = 0; v < count; v++) even[v] = odd[v] = Vector{};
    for (int64_t i = 0; i + 2 <= K; i += 2, row += 2 * W) {
        const Vector x0 = all(x[i]), x1 = all(x[i + 1]);
        UNROLLED for (int v = 0; v < count; v++) even[v] += x0 * load(row + v * LANES);
        UNROLLED for (int v = 0; v < count; v++) odd[v] += x1 * load(row + W + v * LANES);
    }
    const Vector last = all(K % 2 ? x[K - 1] : 0);
    if (K % 2 == 0) row -= W;  // any row will do
    UNROLLED for (int v = 0; v < count; v++)
        store(out + v * LANES, even[v] + odd[v] + last * load(row + v * LANES));
}

void multiply(const double* x, const double* matrix, int64_t K, int64_t W, double* out) {
    in_blocks(W, [=](auto count, int64_t j) { multiply_block<count>(x, matrix + j, K, W, out + j); });
}

// out[j] = max_i x[i] + matrix[i, j]: the same in the algebra of Viterbi.
template <int count>
void best_block(const double* x, const double* matrix, int64_t K, int64_t W, double* out) {
    Vector highest[count];
    UNROLLED for (int v = 0; v < count; v++) highest[v] = all(NEVER);
    for (int64_t i = 0; i < K; i++) {
        const Vector here = all(x[i]);
        UNROLLED for (int v = 0; v < count; v++)
            highest[v] = larger(here + load(matrix + i * W + v * LANES), highest[v]);
    }
    UNROLLED for (int v = 0; v < count; v++) store(out + v * LANES, highest[v]);
}

void best(const double* x, const double* matrix, int64_t K, int64_t W, double* out) {
    in_blocks(W, [=](auto count, int64_t j) { best_block<count>(x, matrix + j, K, W, out + j); });
}

// out[j] = log Σ_i e^{x[i] + matrix[i, j]}: the same in logarithms.
void log_multiply(const double* x, const double* matrix, int64_t K, int64_t W, double* out) {
    best(x, matrix, K, W, out);
    for (int64_t j = 0; j < W; j += LANES) {
        const Vector top = load(out + j);
        const Vector from = top == all(NEVER) ? Vector{} : top;  // -inf − -inf would be NaN
        Vector sum{};
        for (int64_t i = 0; i < K; i++) sum += exponential(all(x[i]) + load(matrix + i * W + j) - from);
        for (int64_t l = 0; l < LANES; l++) out[j + l] = from[l] + std::log(sum[l]);
    }
}

double log_sum(const double* x, const double* y, int64_t W) {  // log Σ_j e^{x[j] + y[j]}
    double top = NEVER, sum = 0;
    for (int64_t j = 0; j < W; j++) top = std::max(top, x[j] + y[j]);
    if (top == NEVER) top = 0;
    for (int64_t j = 0; j < W; j += LANES) sum += sum_lanes<double>(exponential(load(x + j) + load(y + j) - all(top)));
    return top + std::log(sum);
}

// counts[i, j] += Σ_s rows[s][i]·columns[s, j], a few i and a few steps s at once.
template <int some, int steps>
void count_some(const double* const* rows, const double* columns, int64_t i, int64_t W, double* counts) {
    Vector weights[some][steps];
    for (int n = 0; n < some; n++)
        for (int s = 0; s < steps; s++) weights[n][s] = all(rows[s][i + n]);
    for (int64_t j = 0; j < W; j += LANES) {
        Vector column[steps];
        for (int s = 0; s < steps; s++) column[s] = load(columns + s * W + j);
        for (int n = 0; n < some; n++) {
            double* at = counts + (i + n) * W + j;
            Vector sum = load(at);
            for (int s = 0; s < steps; s++) sum += weights[n][s] * column[s];
            store(at, sum);
        }
    }
}

template <int steps>
void count_moves(const double* const* rows, const double* columns, int64_t K, int64_t W, double* counts) {
    int64_t i = 0;
    for (; i + 2 <= K; i += 2) count_some<2, steps>(rows, columns, i, W, counts);
    if (i < K) count_some<1, steps>(rows, columns, i, W, counts);
}

template <typename Real>
struct Chain {
    const Real *emissions, *transitions, *start, *end;
    const uint8_t* mask;  // null: every step exists
    int64_t B, T, K, W;

    bool exists(int64_t b, int64_t t) const { return !mask || mask[b * T + t]; }
    int64_t next(int64_t b, int64_t t) const {  // the first step from t on that exists, or T
        while (t < T && !exists(b, t)) t++;
        return t;
    }
    int64_t last(int64_t b, int64_t t) const {  // the last step up to t that exists, or -1
        while (t >= 0 && !exists(b, t)) t--;
        return t;
    }
    const Real* emission(int64_t b, int64_t t) const { return emissions + (b * T + t) * K; }
};

template <typename Real>
void copy_scores(const Real* from, int64_t K, int64_t W, double* to) {
    for (int64_t j = 0; j < K; j++) to[j] = from[j];
    for (int64_t j = K; j < W; j++) to[j] = NEVER;
}

// e^{score − top}; weights below e^-DEPTH are dropped, and `nearest` keeps the highest dropped one.
void weigh(const double* scores, Vector top, int64_t W, double* weights, Vector& nearest) {
    Vector near = nearest;
    for (int64_t j = 0; j < W; j += LANES) {
        const Vector below = load(scores + j) - top;
        const Integers dropped = below < all(-DEPTH);
        near = larger(dropped ? below : all(NEVER), near);
        store(weights + j, dropped ? Vector{} : tame_exponential(below));
    }
    nearest = near;
}

// What all rows share: transitions, start and end as scores, and as weights with the scores they were divided by.
struct Model {
    int64_t K, W;
    double *scores, *scores_back, *start_scores, *end_scores;  // scores[i, j], scores_back[j, i]; padded with -inf
    double *weights, *weights_back, *start, *end;              // padded with 0
    double top, start_top, end_top;
    double nearest = NEVER;  // the highest weight that was dropped, as a logarithm

    static int64_t size(int64_t K) { return 4 * (K + 1) * padded(K); }

    template <typename Real>
    Model(const Chain<Real>& chain, double* room) : K(chain.K), W(chain.W) {
        for (double** matrix : {&scores, &scores_back, &weights, &weights_back}) {
            *matrix = room;
            room += K * W;
        }
        for (double** vector : {&start_scores, &end_scores, &start, &end}) {
            *vector = room;
            room += W;
        }
        for (int64_t i = 0; i < K; i++) copy_scores(chain.transitions + i * K, K, W, scores + i * W);
        turn(scores, NEVER, scores_back);
        copy_scores(chain.start, K, W, start_scores);
        copy_scores(chain.end, K, W, end_scores);
    }

    void exponentiate() {
        top = weigh_all(scores, K, weights);
        start_top = weigh_all(start_scores, 1, start);
        end_top = weigh_all(end_scores, 1, end);
        turn(weights, 0, weights_back);
    }

   private:
    void turn(const double* from, double padding, double* to) const {
        std::fill_n(to, K * W, padding);
        for (int64_t i = 0; i < K; i++)
            for (int64_t j = 0; j < K; j++) to[j * W + i] = from[i * W + j];
    }

    double weigh_all(const double* from, int64_t rows, double* to) {
        double highest = NEVER;
        for (int64_t n = 0; n < rows * W; n++) highest = std::max(highest, from[n]);
        if (highest == NEVER) highest = 0;  // nothing is allowed, all weights are 0
        Vector dropped = all(NEVER);
        for (int64_t i = 0; i < rows; i++) weigh(from + i * W, all(highest), W, to + i * W, dropped);
        nearest = std::max(nearest, largest_lane(dropped)[0]);
        return highest;
    }
};

// The scratch memory of one thread.
struct Room {
    double *scores, *weights, *first, *second, *columns, *counts;

    static int64_t size(int64_t K) { return (4 + STEPS + K) * padded(K); }

    Room(double* rooms, int64_t K) {
        const int64_t W = padded(K);
        scores = rooms + this_thread() * size(K);
        weights = scores + W;
        first = weights + W;
        second = first + W;
        columns = second + W;
        counts = columns + STEPS * W;
        std::fill_n(scores, W, NEVER);  // the padding stays
    }
};

// The weights of a step's emissions, divided by e^top, which is returned in every lane.
template <typename Real>
Vector weigh_emission(const Chain<Real>& chain, int64_t b, int64_t t, Room& room, Vector& nearest) {
    const Real* emission = chain.emission(b, t);
    int64_t j = 0;
    for (; j + LANES <= chain.K; j += LANES) store(room.scores + j, widen(emission + j));
    for (; j < chain.K; j++) room.scores[j] = emission[j];
    const Vector top = largest(room.scores, chain.W);
    weigh(room.scores, top, chain.W, room.weights, nearest);
    return top;
}

// A step of b by scores; c becomes b with the emissions of the step.
template <typename Real>
void step_back(const Chain<Real>& chain, const Model& model, int64_t row, int64_t t, double* c, double* b) {
    const Real* emission = chain.emission(row, t);
    for (int64_t j = 0; j < chain.W; j++) c[j] = j < chain.K ? b[j] + emission[j] : NEVER;
    log_multiply(c, model.scores_back, chain.K, chain.W, b);
}

// log Z by weights, and a_t into `kept` where it is not null; NaN where this method is not precise enough. With
// `shifts`, a_t is kept·e^{shifts[t]}, and a single finite score whose weight would be dropped is not precise enough.
//
// Every a is 0 or at least TINY, transitions and emissions are 0 or at least e^-DEPTH, so that no product underflows:
// 0 means that no sequence passes here, except through a dropped weight. Those sequences weigh at most e^nearest
// each, and there are at most K^n of them: together they must be negligible. NaN and +inf make every later a NaN.
template <typename Real>
double total_by_weights(const Chain<Real>& chain, const Model& model, int64_t b, Room& room, double* kept,
                        double* shifts = nullptr) {
    const int64_t K = chain.K, W = chain.W;
    Integers tiny{}, exponents{};
    Vector nearest = all(model.nearest), tops{};
    int64_t steps = 0;
    double *before = nullptr, *a = nullptr;
    for (int64_t t = chain.next(b, 0); t < chain.T; t = chain.next(b, t + 1)) {
        tops += weigh_emission(chain, b, t, room, nearest);
        before = a;
        a = kept ? kept + t * W : before == room.first ? room.second : room.first;
        if (before)
            multiply(before, model.weights, K, W, a);
        else
            std::copy_n(model.start, W, a);
        Vector top{};
        for (int64_t j = 0; j < W; j += LANES) {
            const Vector here = load(a + j) * load(room.weights + j);
            top = larger(here, top);
            store(a + j, here);
        }
        const Vector scale = scale_of(largest_lane(top), exponents);
        for (int64_t j = 0; j < W; j += LANES) {
            const Vector here = load(a + j) * scale;
            tiny |= (here > Vector{}) & (here < all(TINY));
            store(a + j, here);
        }
        if (shifts) shifts[t] = tops[0] + model.start_top + steps * model.top + LN2 * (exponents[0] - BIAS * (steps + 1));
        steps++;
    }
    Vector sum{};
    for (int64_t j = 0; j < W; j += LANES) sum += load(a + j) * load(model.end + j);
    const double total = sum_lanes<double>(sum);
    if (!(total > 0) || any_lane(tiny)) return UNKNOWN;
    if (shifts && largest_lane(nearest)[0] > NEVER) return UNKNOWN;
    const double log_total = std::log(total) + LN2 * (exponents[0] - BIAS * steps);
    const double lost = steps * std::log(static_cast<double>(K)) + largest_lane(nearest)[0];
    const double shifted = tops[0] + model.start_top + model.end_top + (steps - 1) * model.top;
    return lost - log_total < NEGLIGIBLE ? log_total + shifted : UNKNOWN;
}

// log Z by scores, and log a_t, up to a constant for each step, into `kept` where it is not null; `shifts` are these.
template <typename Real>
double total_by_scores(const Chain<Real>& chain, const Model& model, int64_t b, Room& room, double* kept,
                       double* shifts = nullptr) {
    const int64_t K = chain.K, W = chain.W;
    double *before = nullptr, *a = nullptr, tops = 0;
    for (int64_t t = chain.next(b, 0); t < chain.T; t = chain.next(b, t + 1)) {
        before = a;
        a = kept ? kept + t * W : before == room.first ? room.second : room.first;
        if (before)
            log_multiply(before, model.scores, K, W, a);
        else
            std::copy_n(model.start_scores, W, a);
        add(chain.emission(b, t), K, a);
        const double top = largest(a, W)[0];
        if (std::isfinite(top)) {  // near 0 they keep their digits
            for (int64_t j = 0; j < W; j++) a[j] -= top;
            tops += top;
        }
        if (shifts) shifts[t] = tops;
    }
    return log_sum(a, model.end_scores, W) + tops;
}

// Where a row's gradient goes: times `scale` to its emissions, and added to its group's counts.
template <typename Real>
struct Gradient {
    double scale;
    Real* emissions;                    // (T, K)
    double *transitions, *start, *end;  // of the group; null where only the emissions' gradient is wanted

    void put(const Chain<Real>& chain, int64_t t, const double* marginals) const {
        Real* to = emissions + t * chain.K;
        int64_t j = 0;
        for (; j + LANES <= chain.K; j += LANES) narrow(to + j, all(scale) * load(marginals + j));
        for (; j < chain.K; j++) to[j] = static_cast<Real>(scale * marginals[j]);
    }
    void clear(const Chain<Real>& chain, int64_t b, bool every_step) const {  // masked steps, or all
        for (int64_t t = 0; t < chain.T; t++)
            if (every_step || !chain.exists(b, t)) std::fill_n(emissions + t * chain.K, chain.K, Real{});
    }
    void add(double* to, const double* counts, int64_t size) const {
        for (int64_t n = 0; n < size; n++) to[n] += scale * counts[n];
    }
};

// Marginals of one step from a and b, 0 where a is 0; returns their sum before normalization.
double share(const double* a, double* b, int64_t W, double* marginals) {
    Vector sum{};
    for (int64_t j = 0; j < W; j += LANES) {
        const Vector here = load(a + j), after = here > Vector{} ? load(b + j) : Vector{};
        store(b + j, after);
        store(marginals + j, here * after);
        sum += here * after;
    }
    const double total = sum_lanes<double>(sum);
    const Vector part = all(1 / total);
    for (int64_t j = 0; j < W; j += LANES) store(marginals + j, load(marginals + j) * part);
    return total;
}

// The gradient of log Z of a row, by weights or by scores as its total was computed. By weights b is 0 where a is, and
// a is at least TINY elsewhere: the sum of a·b is never small, and underflow in b has no effect.
template <bool by_weights, typename Real>
void gradient_of(const Chain<Real>& chain, const Model& model, int64_t row, Room& room, const double* kept,
                 const Gradient<Real>& gradient) {
    const int64_t K = chain.K, W = chain.W;
    double *b = room.first, *marginals = room.second;
    Vector nearest{};
    Integers unused{};
    const double* rows[STEPS];
    int waiting = 0;
    const auto put = [&](int64_t t) {  // returns the sum of a·b before normalization, or its logarithm
        double sum;
        if constexpr (by_weights) {
            sum = share(kept + t * W, b, W, marginals);
        } else {
            sum = log_sum(kept + t * W, b, W);
            for (int64_t j = 0; j < W; j += LANES) {
                store(b + j, load(b + j) - all(sum));
                store(marginals + j, exponential(load(kept + t * W + j) + load(b + j)));
            }
        }
        gradient.put(chain, t, marginals);
        return sum;
    };
    if (gradient.transitions) std::fill_n(room.counts, K * W, 0.0);
    int64_t t = chain.last(row, chain.T - 1);
    std::copy_n(by_weights ? model.end : model.end_scores, W, b);
    put(t);
    if (gradient.end) gradient.add(gradient.end, marginals, K);
    for (int64_t before = chain.last(row, t - 1); before >= 0; t = before, before = chain.last(row, t - 1)) {
        double* c = room.columns + waiting * W;
        if constexpr (by_weights) {
            weigh_emission(chain, row, t, room, nearest);
            const Vector scale = scale_of(largest(b, W), unused);
            for (int64_t j = 0; j < W; j += LANES) store(c + j, load(room.weights + j) * (load(b + j) * scale));
            multiply(c, model.weights_back, K, W, b);
        } else {
            step_back(chain, model, row, t, c, b);
        }
        const double sum = put(before);
        if (!gradient.transitions) continue;
        if constexpr (by_weights) {
            for (int64_t j = 0; j < W; j += LANES) store(c + j, load(c + j) * all(1 / sum));
            rows[waiting++] = kept + before * W;
            if (waiting == STEPS) {
                count_moves<STEPS>(rows, room.columns, K, W, room.counts);
                waiting = 0;
            }
        } else {
            for (int64_t i = 0; i < K; i++) {
                const Vector here = all(kept[before * W + i] - sum);
                for (int64_t j = 0; j < W; j += LANES) {
                    double* count = room.counts + i * W + j;
                    store(count, load(count) + exponential(here + load(model.scores + i * W + j) + load(c + j)));
                }
            }
        }
    }
    if (gradient.start) gradient.add(gradient.start, marginals, K);
    if (!gradient.transitions) return;
    if constexpr (by_weights) {
        for (int s = 0; s < waiting; s++) count_moves<1>(rows + s, room.columns + s * W, K, W, room.counts);
        for (int64_t n = 0; n < K * W; n++) room.counts[n] *= model.weights[n];
    }
    gradient.add(gradient.transitions, room.counts, K * W);
}

// Calls visit(step, tag, the tag before or -1) for every step of a sequence that exists; false, without any call,
// where a tag is out of range.
template <typename Real, typename Visit>
bool follow(const Chain<Real>& chain, int64_t b, const int64_t* tags, Visit visit) {
    for (int64_t t = chain.next(b, 0); t < chain.T; t = chain.next(b, t + 1))
        if (tags[t] < 0 || tags[t] >= chain.K) return false;
    int64_t before = -1;
    for (int64_t t = chain.next(b, 0); t < chain.T; t = chain.next(b, t + 1)) {
        visit(t, tags[t], before);
        before = tags[t];
    }
    return true;
}

template <typename Real>
double score_of(const Chain<Real>& chain, const Model& model, int64_t b, const int64_t* tags, bool& known) {
    double score = 0;
    int64_t last = -1;
    known = follow(chain, b, tags, [&](int64_t t, int64_t tag, int64_t before) {
        score += before < 0 ? model.start_scores[tag] : model.scores[before * model.W + tag];
        score += chain.emission(b, t)[tag];
        last = tag;
    });
    return last < 0 ? score : score + model.end_scores[last];
}

// Adds the gradient of a sequence's score.
template <typename Real>
void add_sequence(const Chain<Real>& chain, int64_t b, const int64_t* tags, double scale, const Gradient<Real>& to) {
    int64_t last = -1;
    follow(chain, b, tags, [&](int64_t t, int64_t tag, int64_t before) {
        to.emissions[t * chain.K + tag] += static_cast<Real>(scale);
        (before < 0 ? to.start[tag] : to.transitions[before * chain.W + tag]) += scale;
        last = tag;
    });
    if (last >= 0) to.end[last] += scale;
}

// The rows' transitions are counted in parts, and the parts added up in their order.
struct Groups {
    int64_t count, rows, size;
    double* counts;

    static int64_t number(int64_t B, int64_t K) {
        return std::max<int64_t>(1, std::min({B, GROUPS, std::max<int64_t>(4, COUNTS / ((K + 2) * padded(K)))}));
    }
    static int64_t room(int64_t B, int64_t K) { return number(B, K) * (K + 2) * padded(K); }

    Groups(double* room, int64_t B, int64_t K) : count(number(B, K)), size((K + 2) * padded(K)), counts(room) {
        rows = (B + count - 1) / count;
        std::fill_n(counts, count * size, 0.0);
    }

    template <typename Real>
    Gradient<Real> gradient(const Chain<Real>& chain, int64_t group, int64_t b, double scale, Real* emissions) const {
        double* own = counts + group * size;
        return {scale, emissions + b * chain.T * chain.K, own, own + chain.K * chain.W, own + (chain.K + 1) * chain.W};
    }

    template <typename Real>
    void add_up(const Chain<Real>& chain, Real* transitions, Real* start, Real* end) const {
        for (int64_t group = 1; group < count; group++)
            for (int64_t n = 0; n < size; n++) counts[n] += counts[group * size + n];
        for (int64_t i = 0; i < chain.K + 2; i++) {
            Real* to = i < chain.K ? transitions + i * chain.K : i == chain.K ? start : end;
            for (int64_t j = 0; j < chain.K; j++) to[j] = static_cast<Real>(counts[i * chain.W + j]);
        }
    }
};

// totals (B): log Z, or log p(tags) where tags (B, T) is not null. ways (B) and kept (B, T, W) are for the
// gradient; kept may be null. Returns the number of rows with a tag out of range.
template <typename Real>
int64_t total(const Chain<Real>& chain, const int64_t* tags, double* scratch, Real* totals, uint8_t* ways, double* kept,
              int threads) {
    Model model(chain, scratch);
    model.exponentiate();
    double* rooms = scratch + Model::size(chain.K);
    int64_t unknown = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1) reduction(+ : unknown)
    for (int64_t b = 0; b < chain.B; b++) {
        Room room(rooms, chain.K);
        bool known = true;
        const double score = tags ? score_of(chain, model, b, tags + b * chain.T, known) : 0;
        unknown += !known;
        ways[b] = NO_GRADIENT;
        totals[b] = static_cast<Real>(score);  // of an empty row, and of forbidden tags
        const bool settled = score == NEVER || chain.next(b, 0) == chain.T;
        double* own = kept ? kept + b * chain.T * chain.W : nullptr;
        for (int64_t t = 0; own && t < chain.T; t++)
            if (settled || !chain.exists(b, t)) std::fill_n(own + t * chain.W, chain.W, 0.0);
        if (settled) continue;
        double log_z = total_by_weights(chain, model, b, room, own);
        ways[b] = BY_WEIGHTS;
        if (std::isnan(log_z)) {
            log_z = total_by_scores(chain, model, b, room, own);
            ways[b] = log_z == NEVER ? NO_GRADIENT : BY_SCORES;
        }
        totals[b] = static_cast<Real>(tags ? score - log_z : log_z);
    }
    return unknown;
}

// The gradients of Σ grad·totals. transitions, start and end may be null, if there are no tags.
template <typename Real>
void gradients(const Chain<Real>& chain, const int64_t* tags, const Real* grad, const uint8_t* ways, const double* kept,
               double* scratch, Real* emissions, Real* transitions, Real* start, Real* end, int threads) {
    Model model(chain, scratch);
    model.exponentiate();
    double* rooms = scratch + Model::size(chain.K);
    const Groups groups(rooms + threads * Room::size(chain.K), chain.B, chain.K);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t group = 0; group < groups.count; group++) {
        Room room(rooms, chain.K);
        for (int64_t b = group * groups.rows; b < std::min(chain.B, (group + 1) * groups.rows); b++) {
            const double scale = grad[b];
            Gradient<Real> to = groups.gradient(chain, group, b, tags ? -scale : scale, emissions);
            if (!transitions) to.transitions = to.start = to.end = nullptr;
            const bool any = ways[b] != NO_GRADIENT && scale != 0;
            to.clear(chain, b, !any);
            if (!any) continue;
            const double* own = kept + b * chain.T * chain.W;
            const auto compute = ways[b] == BY_WEIGHTS ? gradient_of<true, Real> : gradient_of<false, Real>;
            compute(chain, model, b, room, own, to);
            if (tags) add_sequence(chain, b, tags + b * chain.T, scale, to);
        }
    }
    if (transitions) groups.add_up(chain, transitions, start, end);
}

// Whether there is a NaN on the row's sequences.
template <typename Real>
bool meets_nan(const Chain<Real>& chain, int64_t b) {
    const auto any = [](const Real* x, int64_t size) {
        bool found = false;
        for (int64_t n = 0; n < size; n++) found |= x[n] != x[n];
        return found;
    };
    bool found = false;
    int64_t steps = 0;
    for (int64_t t = chain.next(b, 0); t < chain.T; t = chain.next(b, t + 1), steps++)
        found |= any(chain.emission(b, t), chain.K);
    if (steps > 0) found |= any(chain.start, chain.K) | any(chain.end, chain.K);
    return found || (steps > 1 && any(chain.transitions, chain.K * chain.K));
}

// The first i with the highest x[i] + y[i].
int64_t first_best(const double* x, const double* y, int64_t W) {
    Vector top = all(NEVER);
    Integers places{}, place = {0, 1, 2, 3};
    for (int64_t i = 0; i < W; i += LANES, place += LANES) {
        const Vector here = load(x + i) + load(y + i);
        places = here > top ? place : places;
        top = larger(here, top);
    }
    int64_t lane = 0;
    for (int64_t l = 1; l < LANES; l++)
        if (top[l] > top[lane] || (top[l] == top[lane] && places[l] < places[lane])) lane = l;
    return places[lane];
}

// Viterbi of one row. Only the best scores are kept; their previous tags are computed again on the way back.
template <typename Real>
double decode(const Chain<Real>& chain, const Model& model, int64_t b, double* room, int64_t* tags) {
    const int64_t K = chain.K, W = chain.W;
    const double* before = nullptr;
    for (int64_t t = chain.next(b, 0); t < chain.T; t = chain.next(b, t + 1)) {
        double* here = room + t * W;
        if (before)
            best(before, model.scores, K, W, here);
        else
            std::copy_n(model.start_scores, W, here);
        add(chain.emission(b, t), K, here);
        before = here;
    }
    const double* arriving = model.end_scores;
    double score = NEVER;
    for (int64_t t = chain.last(b, chain.T - 1); t >= 0; t = chain.last(b, t - 1)) {
        const int64_t tag = first_best(room + t * W, arriving, W);
        if (arriving == model.end_scores) score = room[t * W + tag] + arriving[tag];
        tags[t] = tag;
        arriving = model.scores_back + tag * W;
    }
    return score;
}

// The k best of lists[rank, tag] + extra[tag], where the ranks of a tag run from its best to its worst: their scores
// into to[n·stride], and which entries they are, tag·k + rank. Of equal scores the lowest tag's come first.
void merge(const double* lists, const double* extra, int64_t W, int64_t k, double* heads, int64_t* ranks, double* to,
           int64_t stride, int32_t* from) {
    for (int64_t i = 0; i < W; i += LANES) store(heads + i, load(lists + i) + load(extra + i));
    std::fill_n(ranks, W, 0);
    for (int64_t n = 0; n < k; n++) {
        const double top = largest(heads, W)[0];
        int64_t tag = 0;
        if (top > NEVER) {
            while (heads[tag] != top) tag++;
            from[n] = static_cast<int32_t>(tag * k + ranks[tag]);
            const int64_t next = ++ranks[tag];
            heads[tag] = next < k ? lists[next * W + tag] + extra[tag] : NEVER;
        } else {
            from[n] = 0;  // no sequence, and none after it
        }
        to[n * stride] = top;
    }
}

// The scratch memory of one thread for the k best, in doubles.
int64_t decode_room(int64_t T, int64_t K, int64_t k) {
    const int64_t W = padded(K), sources = ((T * K + 1) * k + 1) / 2;
    return k == 1 ? T * W : 2 * (k + 1) * W + sources;
}

// List Viterbi: for each tag the k best sequences that end in it.
template <typename Real>
void decode_some(const Chain<Real>& chain, const Model& model, int64_t b, int64_t k, double* room, int64_t* tags,
                 double* scores) {
    const int64_t T = chain.T, K = chain.K, W = chain.W;
    double *heads = room, *lists = heads + 2 * W, *next = lists + k * W;  // lists (k, W)
    int64_t* ranks = reinterpret_cast<int64_t*>(heads + W);
    int32_t* sources = reinterpret_cast<int32_t*>(next + k * W);  // (T, K, k), and then those of the end
    std::fill_n(lists, 2 * k * W, NEVER);
    bool first = true;
    for (int64_t t = chain.next(b, 0); t < T; t = chain.next(b, t + 1)) {
        const Real* emission = chain.emission(b, t);
        if (first) std::copy_n(model.start_scores, W, next);
        for (int64_t j = 0; j < K; j++) {
            const double* arriving = model.scores_back + j * W;
            if (!first) merge(lists, arriving, W, k, heads, ranks, next + j, W, sources + (t * K + j) * k);
            for (int64_t n = 0; n < k; n++) next[n * W + j] += emission[j];
        }
        std::swap(lists, next);
        first = false;
    }
    int32_t* entries = sources + T * K * k;
    merge(lists, model.end_scores, W, k, heads, ranks, scores, 1, entries);
    for (int64_t n = 0; n < k && scores[n] > NEVER; n++) {
        int64_t entry = entries[n];
        for (int64_t t = chain.last(b, T - 1); t >= 0; t = chain.last(b, t - 1)) {
            tags[n * T + t] = entry / k;
            entry = sources[t * K * k + entry];
        }
    }
}

// scores (B, k) and tags (B, k, T) of the k best sequences, best first; -inf and -1 where there are no more.
template <typename Real>
void decode_all(const Chain<Real>& chain, int64_t k, double* scratch, Real* scores, int64_t* tags, int threads) {
    const int64_t T = chain.T;
    const Model model(chain, scratch);
    double* rooms = scratch + Model::size(chain.K);
    const int64_t size = decode_room(T, chain.K, k) + k;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < chain.B; b++) {
        double* found = rooms + this_thread() * size;
        double* room = found + k;
        int64_t* own = tags + b * k * T;
        std::fill_n(own, k * T, -1);
        std::fill_n(found, k, NEVER);
        if (chain.next(b, 0) == T) {
            found[0] = 0;  // the empty sequence
        } else if (k > 1) {
            decode_some(chain, model, b, k, room, own, found);
        } else {
            found[0] = decode(chain, model, b, room, own);
            if (found[0] == NEVER) std::fill_n(own, T, -1);
        }
        const bool spoilt = meets_nan(chain, b);
        for (int64_t n = 0; n < k; n++)
            scores[b * k + n] = spoilt ? std::numeric_limits<Real>::quiet_NaN() : static_cast<Real>(found[n]);
    }
}

// --- spans: for every step and label, the log of all that may come before a span, and after it
//
//     P(span of label n, steps i..j) = a_i(first)·Π(transitions and emissions inside)·c_j(n) / Z
//     c_j(n) = Σ_{y' ≠ continuing} e^{A[last, y']}·e^{x_j+1(y')}·b_j+1(y'),   e^{end[last]} after the last step

// The tags of N labels, each (N): of a span of one step, and of the first and last step of a longer one; and the tag
// that would continue a span, or -1.
struct SpanTags {
    const int64_t *single, *first, *last, *continuing;
    int64_t N, NW;

    SpanTags(const int64_t* tags, int64_t labels)
        : single(tags), first(tags + labels), last(tags + 2 * labels), continuing(tags + 3 * labels), N(labels),
          NW(padded(labels)) {}

    // to[y', n] = moves[tag_n, y'], `nothing` where y' would continue the span of n.
    void leaving(const int64_t* tag, const double* moves, double nothing, int64_t K, int64_t W, double* to) const {
        std::fill_n(to, K * NW, nothing);
        for (int64_t n = 0; n < N; n++)
            for (int64_t y = 0; y < K; y++)
                if (y != continuing[n]) to[y * NW + n] = moves[tag[n] * W + y];
    }
};

// Where the messages of a row go, each (T, N).
struct SpanMessages {
    double *opened, *alone, *closed, *closed_alone;
};

// The scratch memory of one thread, and the transitions out of spans, which all rows share.
struct SpanRoom {
    static int64_t shared(int64_t K, int64_t N) { return 4 * K * padded(N); }
    static int64_t size(int64_t T, int64_t K, int64_t N) { return T * (padded(K) + 1) + padded(N); }
};

// What comes after the spans that end at each step: by weights, where it returns false if they are not precise enough,
// or by scores. `longer` and `single` are the transitions out of spans.
template <bool by_weights, typename Real>
bool close_spans(const Chain<Real>& chain, const Model& model, const SpanTags& tags, const double* longer,
                 const double* single, int64_t row, Room& room, double* sums, const SpanMessages& to) {
    const int64_t K = chain.K, W = chain.W, N = tags.N;
    double *b = room.first, *c = room.columns, shift = by_weights ? model.end_top : 0;
    Vector nearest = all(NEVER);
    Integers tiny{};
    int64_t t = chain.last(row, chain.T - 1);
    std::copy_n(by_weights ? model.end : model.end_scores, W, b);
    for (int64_t n = 0; n < N; n++) {
        to.closed[t * N + n] = model.end_scores[tags.last[n]];
        to.closed_alone[t * N + n] = model.end_scores[tags.single[n]];
    }
    for (int64_t before = chain.last(row, t - 1); before >= 0; t = before, before = chain.last(row, t - 1)) {
        if constexpr (by_weights) {
            Integers exponents{};
            const Vector scale = scale_of(largest(b, W), exponents);
            shift += weigh_emission(chain, row, t, room, nearest)[0] + model.top + LN2 * (exponents[0] - BIAS);
            for (int64_t j = 0; j < W; j += LANES) {
                const Vector here = load(b + j) * scale;
                tiny |= (here > Vector{}) & (here < all(TINY));
                store(c + j, load(room.weights + j) * here);
            }
            multiply(c, model.weights_back, K, W, b);
        } else {
            step_back(chain, model, row, t, c, b);
        }
        const auto put = [&](const double* leaving, double* into) {
            (by_weights ? multiply : log_multiply)(c, leaving, K, tags.NW, sums);
            for (int64_t n = 0; n < N; n++) into[before * N + n] = shift + (by_weights ? std::log(sums[n]) : sums[n]);
        };
        put(longer, to.closed);
        put(single, to.closed_alone);
    }
    return !any_lane(tiny);
}

// The messages (4, B, T, N) of opened, alone, closed and closed_alone spans, and log Z (B).
template <typename Real>
void span_messages(const Chain<Real>& chain, const SpanTags& tags, double* scratch, double* messages, double* totals,
                   int threads) {
    const int64_t T = chain.T, K = chain.K, W = chain.W, N = tags.N, size = T * N;
    Model model(chain, scratch);
    model.exponentiate();
    double* longer = scratch + Model::size(K);
    double *single = longer + K * tags.NW, *longer_scores = single + K * tags.NW;
    double* single_scores = longer_scores + K * tags.NW;
    tags.leaving(tags.last, model.weights, 0, K, W, longer);
    tags.leaving(tags.single, model.weights, 0, K, W, single);
    tags.leaving(tags.last, model.scores, NEVER, K, W, longer_scores);
    tags.leaving(tags.single, model.scores, NEVER, K, W, single_scores);
    double* rooms = longer + SpanRoom::shared(K, N);
    double* own_rooms = rooms + threads * Room::size(K);
    std::fill_n(messages, 4 * chain.B * size, NEVER);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < chain.B; b++) {
        totals[b] = 0;
        if (chain.next(b, 0) == T) continue;
        Room room(rooms, K);
        double *kept = own_rooms + this_thread() * SpanRoom::size(T, K, N), *shifts = kept + T * W, *sums = shifts + T;
        const auto part = [&](int64_t n) { return messages + (n * chain.B + b) * size; };
        const SpanMessages to{part(0), part(1), part(2), part(3)};
        totals[b] = total_by_weights(chain, model, b, room, kept, shifts);
        bool by_weights = !std::isnan(totals[b]);
        if (by_weights) by_weights = close_spans<true>(chain, model, tags, longer, single, b, room, sums, to);
        if (!by_weights) {
            totals[b] = total_by_scores(chain, model, b, room, kept, shifts);
            close_spans<false>(chain, model, tags, longer_scores, single_scores, b, room, sums, to);
        }
        for (int64_t t = chain.next(b, 0); t < T; t = chain.next(b, t + 1))
            for (int64_t n = 0; n < N; n++) {
                const double first = kept[t * W + tags.first[n]], only = kept[t * W + tags.single[n]];
                to.opened[t * N + n] = shifts[t] + (by_weights ? std::log(first) : first);
                to.alone[t * N + n] = shifts[t] + (by_weights ? std::log(only) : only);
            }
    }
}

// What `every_span` reads: messages (4, B, T, N), emissions of the inner and last tag (B, T, N), transitions (4, N)
// first → last, first → inner, inner → inner, inner → last, log Z (B), and which steps exist (B, T).
struct Spans {
    const double *messages, *inner, *last, *moves, *totals;
    const uint8_t* exists;
    int64_t B, T, N;
};

// The log-probability of every span, (B, T, width, N): from step t on, over 1, 2, … width steps.
void every_span(const Spans& spans, int64_t width, double* runs, double* found, int threads) {
    const int64_t T = spans.T, N = spans.N, size = spans.B * T * N;
    const double *opened = spans.messages, *alone = opened + size, *closed = alone + size, *closed_alone = closed + size;
    const double *to_last = spans.moves, *to_inner = to_last + N, *among = to_inner + N, *from_inner = among + N;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t begin = 0; begin < spans.B * T; begin++) {
        double* to = found + begin * width * N;
        std::fill_n(to, width * N, NEVER);
        const int64_t row_end = (begin / T + 1) * T;
        const double total = spans.totals[begin / T];
        if (!spans.exists[begin] || total == NEVER) continue;
        double* run = runs + this_thread() * N;  // up to and with the inner steps so far
        for (int64_t n = 0; n < N; n++) run[n] = opened[begin * N + n] + to_inner[n];
        int64_t length = 0;
        for (int64_t end = begin; end < std::min(begin + width, row_end); end++, to += N) {
            if (!spans.exists[end]) continue;
            length++;
            const double *last = spans.last + end * N, *inner = spans.inner + end * N, *after = closed + end * N;
            if (length == 1)
                for (int64_t n = 0; n < N; n++) to[n] = alone[begin * N + n] + closed_alone[end * N + n];
            else if (length == 2)
                for (int64_t n = 0; n < N; n++) to[n] = opened[begin * N + n] + to_last[n] + last[n] + after[n];
            else
                for (int64_t n = 0; n < N; n++) to[n] = run[n] + from_inner[n] + last[n] + after[n];
            for (int64_t n = 0; n < N; n++) to[n] = to[n] - total > 0 ? 0 : to[n] - total;
            if (length > 1)
                for (int64_t n = 0; n < N; n++) run[n] += inner[n] + (length > 2 ? among[n] : 0);
        }
    }
}

}  // namespace

extern "C" {

// Doubles of scratch that any of the functions below needs; k is 0 for those that do not decode.
int64_t foci_crf_scratch(int64_t B, int64_t T, int64_t K, int64_t k, int threads) {
    const int64_t decoding = k ? decode_room(T, K, k) + k : 0;
    return Model::size(K) + Groups::room(B, K) + threads * (Room::size(K) + decoding);
}

// Doubles of scratch that the messages of spans need.
int64_t foci_crf_span_scratch(int64_t T, int64_t K, int64_t N, int threads) {
    return Model::size(K) + SpanRoom::shared(K, N) + threads * (Room::size(K) + SpanRoom::size(T, K, N));
}

void foci_crf_every_span(const double* messages, const double* inner, const double* last, const double* moves,
                         const double* totals, const uint8_t* exists, int64_t B, int64_t T, int64_t N, int64_t width,
                         double* scratch, double* found, int threads) {
    every_span({messages, inner, last, moves, totals, exists, B, T, N}, width, scratch, found, threads);
}

#define CHAIN(Real)                                                                                           \
    const Real *emissions, const Real *transitions, const Real *start, const Real *end, const uint8_t *mask, \
        int64_t B, int64_t T, int64_t K
#define MADE(Real) Chain<Real>{emissions, transitions, start, end, mask, B, T, K, padded(K)}

#define INTERFACE(Real, suffix)                                                                                      \
    int64_t foci_crf_total_##suffix(CHAIN(Real), const int64_t* tags, double* scratch, Real* totals, uint8_t* ways,  \
                                    double* kept, int threads) {                                                     \
        return total(MADE(Real), tags, scratch, totals, ways, kept, threads);                                        \
    }                                                                                                                \
    void foci_crf_gradients_##suffix(CHAIN(Real), const int64_t* tags, const Real* grad, const uint8_t* ways,        \
                                     const double* kept, double* scratch, Real* to_emissions, Real* to_transitions,  \
                                     Real* to_start, Real* to_end, int threads) {                                    \
        gradients(MADE(Real), tags, grad, ways, kept, scratch, to_emissions, to_transitions, to_start, to_end,       \
                  threads);                                                                                          \
    }                                                                                                                \
    void foci_crf_decode_##suffix(CHAIN(Real), int64_t k, double* scratch, Real* scores, int64_t* tags,              \
                                  int threads) {                                                                     \
        decode_all(MADE(Real), k, scratch, scores, tags, threads);                                                   \
    }                                                                                                                \
    void foci_crf_span_messages_##suffix(CHAIN(Real), int64_t labels, const int64_t* tags, double* scratch,          \
                                         double* messages, double* totals, int threads) {                            \
        span_messages(MADE(Real), SpanTags(tags, labels), scratch, messages, totals, threads);                       \
    }

INTERFACE(float, float32)
INTERFACE(double, float64)

}  // extern "C"
