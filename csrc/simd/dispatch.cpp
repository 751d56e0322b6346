#include "simd/dispatch.h"

#include <cstdlib>

#include "base/invalid.h"

namespace rbnn {

const std::vector<const Kernels*>& all_kernels() {
    static const std::vector<const Kernels*> kernels = {
#if defined(__x86_64__)
        &kernels_avx512,
        &kernels_avx2,
#endif
#if defined(__aarch64__)
        &kernels_neon,
#endif
        &kernels_portable,
    };
    return kernels;
}

const Kernels& find_kernels(const std::string& asked) {
    const char* environment = std::getenv("RBNN_KERNELS");
    const std::string name = asked.empty() && environment ? environment : asked;
    for (const Kernels* kernels : all_kernels()) {
        if (name.empty() && kernels->supported()) return *kernels;
        if (name != kernels->name) continue;
        if (!kernels->supported()) throw Invalid("this machine cannot run the kernels '" + name + "'");
        return *kernels;
    }
    throw Invalid("no kernels are named '" + name + "'");
}

}  // namespace rbnn
