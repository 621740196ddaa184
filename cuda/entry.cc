// What libweft-cuda.so exports.
#include "collectives/nccl/transport.h"
#include "collectives/nccl_entry.h"
#include "device/cuda/make.h"
#include "device/cuda_entry.h"

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT const weft::device::CudaDeviceEntry weftCudaDevice_v1;
WEFT_EXPORT const weft::collectives::NcclTransportEntry weftNcclTransport_v1;

const weft::device::CudaDeviceEntry weftCudaDevice_v1 = {WEFT_VERSION,
                                                         weft::device::MakeCudaDevice};
const weft::collectives::NcclTransportEntry weftNcclTransport_v1 = {
    WEFT_VERSION, weft::collectives::nccl::CreateTransport};
