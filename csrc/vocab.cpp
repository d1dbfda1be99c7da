#include "vocab.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "vocab_loops.h"

namespace forerun {
namespace vocab {

constexpr size_t MANY = 512;  // tokens that are left and must be put in order
constexpr size_t BINS = 256;

// How far below the largest logit, in units of the temperature, candidates are sought; the last is everything.
constexpr float DEPTHS[] = {3, 6, 9, 12, 16, 20, 26, 34, 50, INF};

struct Candidate {
    float logit, weight;
    uint32_t id;
};

inline bool likelier(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// One row on its way to a distribution: what one pass over it tells, and the tokens that are left.
class Row {
  public:
    Row(const float* row, size_t n, double temperature)
        : row_(row), n_(n), peaks_((n + GROUP - 1) / GROUP * LANES), temperature_(temperature) {
        const bool nan = find_peaks(row, n, peaks_.data());
        best_ = n == 0 ? -INF : *std::max_element(peaks_.begin(), peaks_.end());
        if (nan || !(best_ < INF) || !(best_ > -INF))
            throw std::invalid_argument(nan         ? "a logit is not a number"
                                        : best_ > 0 ? "a logit is infinite"
                                                    : "no logit is finite");
        pace_ = float(1.4426950408889634 / temperature);  // log2(e)
    }

    double total(float* out = nullptr) const { return sum_exp2(row_, n_, best_, pace_, out); }

    // The k likeliest. A peak for each of them, or more, bounds them from below.
    void keep_likeliest(size_t k) {
        float low = -INF;
        if (k <= peaks_.size()) {
            std::vector<float> order(peaks_);
            std::nth_element(order.begin(), order.begin() + ptrdiff_t(k - 1), order.end(), std::greater<float>());
            low = order[k - 1];
        }
        collect(low, INF);
        if (k < left_.size()) {
            std::nth_element(left_.begin(), left_.begin() + ptrdiff_t(k), left_.end(), likelier);
            left_.resize(k);
        }
    }

    // Of those that are left, the likeliest that together reach this share.
    void keep_share_of_left(double share) {
        double sum = 0;
        for (const Candidate& c : left_) sum += c.weight;
        cut(0, 0.0, share * sum);
    }

    // Of all tokens the likeliest that together weigh `goal`, sought ever further below the best.
    void keep_until(double goal) {
        double sum = 0;
        float high = INF;
        for (const float depth : DEPTHS) {
            const size_t start = left_.size();
            const float low = below(depth);
            collect(low, high);
            double here = 0;
            for (size_t i = start; i < left_.size(); i++) here += left_[i].weight;
            if (sum + here >= goal || depth == INF) return cut(start, sum, goal);
            sum += here;
            high = low;
        }
    }

    // All tokens at least as likely as this share of the likeliest.
    void keep_at_least(float share) {
        if (left_.empty()) collect(below(-std::log(share) + 1e-3f), INF);
        drop([share](const Candidate& c) { return c.weight < share; });
    }

    // What is left, likeliest first, in logarithms of its share of all tokens.
    Likeliest in_order() {
        std::sort(left_.begin(), left_.end(), likelier);
        const double all = std::log(total());
        Likeliest out;
        for (const Candidate& c : left_) {
            out.ids.push_back(int64_t(c.id));
            out.logs.push_back((double(c.logit) - double(best_)) / temperature_ - all);
        }
        return out;
    }

    // What is left, in order of ids.
    Support support() {
        drop([](const Candidate& c) { return c.weight <= 0.0f; });
        order_by_id();
        double sum = 0;
        for (const Candidate& c : left_) sum += c.weight;
        Support out;
        out.size = left_.size();
        out.ids.reset(new int64_t[left_.size()]);
        out.weights.reset(new float[left_.size()]);
        for (size_t i = 0; i < left_.size(); i++) {
            out.ids[i] = left_[i].id;
            out.weights[i] = float(left_[i].weight / sum);
        }
        return out;
    }

  private:
    float below(float depth) const { return float(double(best_) - double(depth) * temperature_); }

    // The tokens with low <= logit < high are left too; never those of minus infinity.
    void collect(float low, float high) {
        low = std::max(low, std::numeric_limits<float>::lowest());
        const size_t start = left_.size();
        size_t count = start;
        for (size_t p = 0; p < peaks_.size(); p++) {
            if (!(peaks_[p] >= low)) continue;
            const size_t group = p / LANES * GROUP;
            left_.resize(count + GROUP / LANES);
            for (size_t i = group + p % LANES; i < std::min(n_, group + GROUP); i += LANES) {
                left_[count] = {row_[i], 0.0f, uint32_t(i)};  // stays or not: a branch would often be guessed wrong
                count += row_[i] >= low && row_[i] < high ? 1 : 0;
            }
        }
        left_.resize(count);
        for (size_t i = start; i < count; i++) left_[i].weight = exp2_of((left_[i].logit - best_) * pace_);
    }

    void order_by_id() {
        if (left_.size() < MANY) {
            std::sort(left_.begin(), left_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
            return;
        }
        std::vector<float> weights(n_);  // of all tokens, 0 where they are gone; reading it costs less than sorting
        for (const Candidate& c : left_) weights[c.id] = c.weight;
        size_t count = 0;
        for (size_t i = 0; i < n_; i++)
            if (weights[i] > 0) left_[count++] = {row_[i], weights[i], uint32_t(i)};
    }

    // Of left_[start:], which comes after tokens that weigh `sum`, keep the likeliest until all weigh `goal`.
    void cut(size_t start, double sum, double goal) {
        if (left_.size() - start > MANY) sum += narrow(start, sum, goal);
        std::sort(left_.begin() + ptrdiff_t(start), left_.end(), likelier);
        while (start < left_.size() && (sum < goal || start == 0)) sum += left_[start++].weight;
        left_.resize(start);
    }

    // Makes left_[start:] short by sorting it into bins from the likeliest down: whole bins stay until the one that
    // reaches `goal`, which becomes the new left_[start:]; what lies below is dropped. Returns what those bins weigh.
    double narrow(size_t& start, double sum, double goal) {
        const auto from = left_.begin() + ptrdiff_t(start);
        const auto [low, high] = std::minmax_element(
            from, left_.end(), [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
        if (!(low->logit < high->logit)) return 0.0;
        const double top = high->logit, step = double(BINS) / (top - double(low->logit));
        const auto bin_of = [top, step](const Candidate& c) {
            return std::min(BINS - 1, size_t((top - double(c.logit)) * step));
        };
        double mass[BINS] = {};
        for (auto c = from; c != left_.end(); ++c) mass[bin_of(*c)] += c->weight;
        double above = 0;
        size_t bin = 0;
        while (bin < BINS - 1 && sum + above + mass[bin] < goal) above += mass[bin++];
        std::vector<Candidate> inside;
        size_t count = start;
        for (size_t i = start; i < left_.size(); i++) {
            const Candidate c = left_[i];
            const size_t own = bin_of(c);
            if (own == bin) inside.push_back(c);
            left_[count] = c;
            count += own < bin ? 1 : 0;
        }
        left_.resize(count);
        left_.insert(left_.end(), inside.begin(), inside.end());
        start = count;
        return above;
    }

    template <class Test>
    void drop(Test test) {
        left_.erase(std::remove_if(left_.begin(), left_.end(), test), left_.end());
    }

    const float* row_;
    size_t n_;
    std::vector<float> peaks_;
    std::vector<Candidate> left_;
    double temperature_;
    float best_ = 0, pace_ = 0;
};

}  // namespace vocab

int64_t argmax(const float* row, size_t n) {
    using namespace vocab;
    std::vector<float> peaks((n + GROUP - 1) / GROUP * LANES);
    if (n == 0 || find_peaks(row, n, peaks.data())) return -1;
    const auto best = std::max_element(peaks.begin(), peaks.end());
    size_t i = size_t(best - peaks.begin()) / LANES * GROUP;  // the first group that has it
    while (row[i] != *best) i++;
    return int64_t(i);
}

Support nucleus(const float* row, size_t n, const Filters& filters) {
    if (!(filters.temperature > 0)) throw std::invalid_argument("the temperature must be above 0");
    if (n > std::numeric_limits<uint32_t>::max()) throw std::invalid_argument("too many tokens");
    // where float32 would round the temperature to 0
    vocab::Row left(row, n, std::max(filters.temperature, double(std::numeric_limits<float>::min())));
    const bool few = filters.top_k > 0 && size_t(filters.top_k) < n;
    if (few) left.keep_likeliest(size_t(filters.top_k));
    if (few && filters.top_p < 1) left.keep_share_of_left(filters.top_p);
    if (!few && filters.top_p < 1) left.keep_until(filters.top_p * left.total());
    if (filters.min_p > 0) left.keep_at_least(float(filters.min_p));
    if (few || filters.top_p < 1 || filters.min_p > 0) return left.support();
    Support all;
    all.size = n;
    all.weights.reset(new float[n]);
    const double sum = left.total(all.weights.get());
    vocab::scale(all.weights.get(), n, float(1.0 / sum));
    return all;
}

Likeliest likeliest(const float* row, size_t n, size_t k) {
    if (n > std::numeric_limits<uint32_t>::max()) throw std::invalid_argument("too many tokens");
    vocab::Row left(row, n, 1.0);
    if (k > 0) left.keep_likeliest(k);
    return left.in_order();
}

int64_t race(const float* weights, const int64_t* ids, size_t n, uint64_t key) {
    using namespace vocab;
    int64_t first = -1;
    double pace = 0;
    for (size_t start = 0; start < n; start += RACERS) {
        // a bound a little lower than the best: its logarithm is rounded
        if (start + RACERS <= n && !any_may_win(weights, ids, start, key, pace * (1 - 1e-12))) continue;
        for (size_t i = start; i < std::min(n, start + RACERS); i++) {
            if (!(weights[i] < INF)) return -1;
            if (!(weights[i] > 0)) continue;
            const double uniform = (double(drawn(key, ids != nullptr ? uint64_t(ids[i]) : i)) + 0.5) * 0x1p-52;
            const double own = double(weights[i]) / -std::log(uniform);
            if (own > pace) pace = own, first = int64_t(i);
        }
    }
    return first;
}

}  // namespace forerun
