// A CUDA device without memory and kernels for torch's CPU build: enough for tensors of shapes and for autograd.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::DeviceIndex;
using c10::DeviceType;

static const c10::Device device(DeviceType::CUDA, 0);
static const c10::Stream stream(c10::Stream::DEFAULT, device);

// Python's indexing and autograd switch devices and streams, and let streams wait for one another.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  c10::Device getDevice() const override { return device; }
  c10::Device exchangeDevice(c10::Device) const override { return device; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream; }
  c10::Stream getDefaultStream(c10::Device) const override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream; }
};

static Guard guard;
static c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);

namespace at::cuda {

// Autograd asks which accelerator there is.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at::cuda
