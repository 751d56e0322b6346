// grad_input: image by image, each thread with its own scratch buffers.
#include "base/threads.h"
#include "training/sign_conv.h"

namespace rbnn {

std::function<ImageGradient()> image_gradients(const SignConv& conv, const SignFilters& filters) {
    return conv.kernels.training.look_up_row ? image_gradients_in_registers(conv, filters)
                                             : image_gradients_in_planes(conv, filters);
}

void sign_conv_grad_input(const SignConv& conv, const SignFilters& filters, const float* grad, float* grad_a,
                          const std::function<void(std::size_t, float*)>& done) {
    const auto make = image_gradients(conv, filters);
    parallel_for(conv.images, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        const ImageGradient gradient = make();
        for (std::size_t image = begin; image < end; ++image) {
            float* found = grad_a + image * conv.in_values();
            gradient(grad + image * conv.out_values(), found);
            if (done) done(image, found);
        }
    });
}

}  // namespace rbnn
