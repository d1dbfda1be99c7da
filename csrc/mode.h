// One mode of floating-point arithmetic, whatever the thread was left in: rounding to nearest, subnormal numbers kept.
#pragma once
#include <cfenv>

namespace forerun {

// Bits may not depend on what a caller set (torch.set_flush_denormal, say), nor on what a thread inherited from the one
// that made it. What was found is put back.
class FloatMode {
  public:
    FloatMode() {
        std::fegetenv(&found_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~FloatMode() { std::fesetenv(&found_); }
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

  private:
    std::fenv_t found_;
};

}  // namespace forerun
