// Whether arithmetic produced an infinite value or NaN.
#pragma once
#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace rbnn {

// The floating-point exceptions that this thread raises from here on.  Processors record infinite results and NaN, in
// vector instructions too, at no cost.  The destructor restores the flags that were raised before.
class FloatFlags {
public:
    FloatFlags() : before_(read()) { write(before_ & ~kAll); }
    ~FloatFlags() { write(before_ | read()); }
    FloatFlags(const FloatFlags&) = delete;

    bool overflowed() const { return (read() & kAll) != 0; }
    void clear() { write(before_ & ~kAll); }  // forgets what was raised since

private:
#if defined(__x86_64__)
    using Register = unsigned;
    static constexpr Register kAll = 0x01 | 0x04 | 0x08;  // invalid, division by zero, overflow
    static Register read() { return _mm_getcsr(); }
    static void write(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
    using Register = unsigned long;
    static constexpr Register kAll = 0x01 | 0x02 | 0x04;
    static Register read() {
        Register value;
        asm volatile("mrs %0, fpsr" : "=r"(value));
        return value;
    }
    static void write(Register value) { asm volatile("msr fpsr, %0" : : "r"(value)); }
#else
    using Register = int;
#if defined(FE_OVERFLOW) && defined(FE_INVALID) && defined(FE_DIVBYZERO)
    static constexpr Register kAll = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;
#else
    static constexpr Register kAll = 0;  // a machine without flags: only an output that is not finite is noticed
#endif
    static Register read() { return std::fetestexcept(kAll); }
    static void write(Register value) {
        std::feclearexcept(kAll);
        std::feraiseexcept(value);
    }
#endif
    Register before_;
};

}  // namespace rbnn
