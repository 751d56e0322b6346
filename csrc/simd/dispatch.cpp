#include "simd/dispatch.h"

#include <cstdlib>

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
    std::string usable;
    bool exist = false;
    for (const Kernels* kernels : all_kernels()) {
        exist |= name == kernels->name;
        if (!kernels->supported()) continue;
        if (name.empty() || name == kernels->name) return *kernels;
        usable += (usable.empty() ? "" : ", ") + std::string(kernels->name);
    }
    throw WrongKernels("this machine cannot run the kernels '" + name + "': it can run " + usable, name, exist);
}

}  // namespace rbnn
