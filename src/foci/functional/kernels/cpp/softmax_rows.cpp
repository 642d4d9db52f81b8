// The k largest weights and the entropy of rows of scores, in one pass over each row.
//
//     w_j = e^{s_j − m} / z,    m = max s,  z = Σ_j e^{s_j − m}
//     entropy = −Σ_j w_j log w_j = log z − Σ_j w_j (s_j − m),    two terms of the same sign, without cancellation
//
// A score of −inf is a masked position. A row of masked positions only has weights 0 and entropy 0; a row with a NaN
// has NaN for both.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "floats.h"

namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();
constexpr float FAR = -87.0f;  // e^x of less is below the normal float32 numbers, and counts as 0

double sum_in_double(Vector x) {
    double sum = 0;
    for (int64_t l = 0; l < LANES; l++) sum += x[l];
    return sum;
}

float largest(const float* row, int64_t positions) {
    Vector top = all(NEVER);
    for (int64_t j = 0; j < positions; j += LANES) {
        const Vector s = load_some(row + j, positions - j, NEVER);
        top = s > top ? s : top;
    }
    float best = NEVER;
    for (int64_t l = 0; l < LANES; l++) best = std::max(best, top[l]);
    return best;
}

struct Sums {
    double z, below;  // Σ e^{s − m}, Σ e^{s − m} (s − m)
};

// `with_below` is a constant: only the entropy needs it.
template <bool with_below>
Sums sums_of(const float* row, int64_t positions, float m) {
    Vector z[2] = {}, below[2] = {};
    for (int64_t j = 0, turn = 0; j < positions; j += LANES, turn ^= 1) {  // two sums each: fewer additions wait
        const Vector d = load_some(row + j, positions - j, NEVER) - all(m);
        const Integers near = d >= all(FAR);
        const Integers counts = near | (d != d);  // a NaN must not be lost
        const Vector e = (Vector)((Integers)exponential(near ? d : Vector{}) & near);
        z[turn] += e + (Vector)((Integers)d & counts & ~near);
        if (with_below) below[turn] += e * (near ? d : Vector{});
    }
    return {sum_in_double(z[0] + z[1]), sum_in_double(below[0] + below[1])};
}

// The k best scores so far, best first; of equal ones the first position.
struct Best {
    float* scores;
    int64_t* positions;
    int64_t k;

    bool comes_before(float score, int64_t position, int64_t place) const {
        return score > scores[place] || (score == scores[place] && score > NEVER && position < positions[place]);
    }

    void offer(float score, int64_t position) {
        int64_t place = k - 1;
        if (!comes_before(score, position, place)) return;
        for (; place > 0 && comes_before(score, position, place - 1); place--) {
            scores[place] = scores[place - 1];
            positions[place] = positions[place - 1];
        }
        scores[place] = score;
        positions[place] = position;
    }
};

constexpr int64_t DEPTH = 16;             // positions of a group: one lane of so many vectors
constexpr int64_t BLOCK = DEPTH * LANES;  // LANES groups side by side
constexpr int64_t BLOCKS = 64;            // whose maxima are held at a time

// A group whose maximum is below the k-th best score so far holds none of the k best: most groups are skipped.
void find_best(const float* row, int64_t positions, Best best) {
    for (int64_t i = 0; i < best.k; i++) {
        best.scores[i] = NEVER;
        best.positions[i] = i;
    }
    Vector maxima[BLOCKS];
    for (int64_t first = 0; first < positions; first += BLOCKS * BLOCK) {
        int64_t blocks = 0;
        Vector highest = all(NEVER);
        for (int64_t at = first; at < positions && blocks < BLOCKS; at += BLOCK, blocks++) {
            Vector top = all(NEVER);
            for (int64_t v = 0; v < std::min(BLOCK, positions - at); v += LANES) {
                const Vector x = load_some(row + at + v, positions - at - v, NEVER);
                top = x > top ? x : top;
            }
            maxima[blocks] = top;
            highest = top > highest ? top : highest;
        }
        float reached[LANES];  // the best position of each lane: LANES positions in all
        std::memcpy(reached, &highest, sizeof highest);
        std::sort(reached, reached + LANES);
        const float least = best.k <= LANES ? reached[LANES - best.k] : NEVER;
        for (int64_t b = 0; b < blocks; b++)
            for (int64_t lane = 0; lane < LANES; lane++) {
                if (maxima[b][lane] < std::max(least, best.scores[best.k - 1])) continue;
                const int64_t at = first + b * BLOCK + lane;
                for (int64_t i = at; i < std::min(positions, at + BLOCK); i += LANES) best.offer(row[i], i);
            }
    }
    // Positions of score −inf fill the remaining places, each once.
    int64_t filled = 0;
    while (filled < best.k && best.scores[filled] > NEVER) filled++;
    for (int64_t position = 0; filled < best.k; position++)
        if (std::find(best.positions, best.positions + filled, position) == best.positions + filled) best.positions[filled++] = position;
}

}  // namespace

extern "C" {

void foci_softmax_rows_entropy(const float* scores, int64_t rows, int64_t positions, int64_t threads, float* entropy) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        const float* row = scores + r * positions;
        const float m = largest(row, positions);
        const Sums sums = sums_of<true>(row, positions, m == NEVER ? 0.0f : m);
        entropy[r] = sums.z == 0 ? 0.0f : static_cast<float>(std::log(sums.z) - sums.below / sums.z);
    }
}

// The k largest weights of each row, largest first, and their positions; 1 ≤ k ≤ positions.
void foci_softmax_rows_largest(const float* scores, int64_t rows, int64_t positions, int64_t k, int64_t threads, float* weights,
                       int64_t* chosen) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        const float* row = scores + r * positions;
        const Best best{weights + r * k, chosen + r * k, k};
        find_best(row, positions, best);
        const float m = best.scores[0] == NEVER ? 0.0f : best.scores[0];
        const double z = sums_of<false>(row, positions, m).z;
        for (int64_t i = 0; i < k; i++)
            best.scores[i] = z == 0 ? 0.0f : static_cast<float>(std::exp(double(best.scores[i]) - m) / z);
    }
}

}
