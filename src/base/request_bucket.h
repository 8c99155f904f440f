// SPDX-License-Identifier: Apache-2.0
// Requests are taken from a bucket that fills with time, up to a burst.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace inflight {

class RequestBucket {
 public:
  RequestBucket() = default;  // as many as are asked for
  // Full at `now_ns`; burst >= 1.
  RequestBucket(double per_second, double burst, int64_t now_ns)
      : per_second_(per_second), burst_(burst), left_(burst), filled_ns_(now_ns) {}

  bool Take(int64_t now_ns) {
    if (!is_bounded()) return true;
    Fill(now_ns);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

  // After so many seconds, rounded up, Take gives one again; of a bucket that just gave none.
  int64_t WaitSeconds() const {
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil((1 - left_) / per_second_)));
  }

  // Has no more than `former` has left, whose rule was perhaps another.
  void ContinueFrom(RequestBucket former, int64_t now_ns) {
    if (!is_bounded() || !former.is_bounded()) return;
    former.Fill(now_ns);
    left_ = std::min(burst_, former.left_);
    filled_ns_ = now_ns;
  }

  bool is_bounded() const { return per_second_ > 0; }
  double per_second() const { return per_second_; }
  double burst() const { return burst_; }

 private:
  void Fill(int64_t now_ns) {
    const double seconds = static_cast<double>(now_ns - filled_ns_) * 1e-9;
    left_ = std::min(burst_, left_ + seconds * per_second_);
    filled_ns_ = now_ns;
  }

  double per_second_ = 0;  // 0: unbounded
  double burst_ = 0;
  double left_ = 0;
  int64_t filled_ns_ = 0;
};

}  // namespace inflight
