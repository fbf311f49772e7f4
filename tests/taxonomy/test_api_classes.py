"""Names of CUDA API functions and the classes that they belong to."""

import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.api_classes import (
    API_CLASSES,
    APPLICATION,
    LAUNCH_CLASSES,
    PROFILER,
    WAITING_CLASSES,
    classify_api,
    overhead_kind,
)

CLASSES = {
    "launch": """cudaLaunchKernel_v7000 cudaLaunchKernel_ptsz_v7000 cudaLaunchKernelExC_v11060
        cudaLaunchCooperativeKernel_v9000 cuLaunchKernel cuLaunchKernelEx __cudaLaunchKernel_v13000
        cuLaunchGridAsync""",
    "graph_launch": "cudaGraphLaunch_v10000 cudaGraphLaunch_ptsz_v10000 cuGraphLaunch",
    "memcpy": """cudaMemcpyAsync_v3020 cudaMemcpy2DAsync_ptsz_v7000 cuMemcpyHtoDAsync_v2
        cudaMemPrefetchAsync_v8000 cudaMemcpyPeerAsync_v4000 cudaMemcpyBatchAsync_v12080""",
    "memset": "cudaMemsetAsync_v3020 cuMemsetD8Async cu64MemsetD32Async",
    "sync_memop": """cudaMemcpy_v3020 cudaMemcpy_ptds_v7000 cudaMemcpyToSymbol_v3020
        cudaMemset_v3020 cuMemcpyDtoH_v2 cuMemsetD32_v2 cu64MemcpyHtoD cudaMemcpyPeer_v4000""",
    "host_block": """cudaDeviceSynchronize_v3020 cudaStreamSynchronize_ptsz_v7000 cuCtxSynchronize
        cudaEventSynchronize_v3020 cuEventSynchronize cudaThreadSynchronize_v3020""",
    "poll": "cudaEventQuery_v3020 cudaStreamQuery_v3020 cuStreamQuery cuEventQuery",
    "stream_order": """cudaStreamWaitEvent_v3020 cuStreamWaitEvent cuStreamWaitValue32_v2
        cuStreamWriteValue64 cuStreamBatchMemOp_v2 cudaLaunchHostFunc_v10000 cuCtxWaitEvent
        cudaStreamAddCallback_v5000""",
    "event": """cudaEventRecord_v3020 cudaEventRecordWithFlags_v11010 cudaEventCreateWithFlags_v3020
        cudaEventDestroy_v3020 cuEventElapsedTime cuCtxRecordEvent cudaIpcOpenEventHandle_v4010""",
    "alloc": """cudaMalloc_v3020 cudaMallocAsync_v11020 cudaHostAlloc_v3020 cudaHostRegister_v4000
        cuMemAlloc_v2 cuMemAllocAsync cuMemCreate cuMemMap cuMemAddressReserve cuMemHostAlloc
        cudaMallocManaged_v6000 cudaMallocFromPoolAsync_v11020 cuArrayCreate_v2""",
    "free": """cudaFree_v3020 cudaFreeAsync_v11020 cudaFreeHost_v3020 cuMemFree_v2 cuMemFreeAsync
        cuMemUnmap cuMemRelease cuMemAddressFree cudaHostUnregister_v4000 cuMemPoolTrimTo""",
    "graph": """cudaGraphInstantiate_v12000 cudaStreamBeginCapture_v10000
        cudaGraphAddKernelNode_v10000 cudaStreamIsCapturing_v10000 cuGraphExecUpdate
        cudaThreadExchangeStreamCaptureMode_v10010
        cudaStreamGetCaptureInfo_v2_v11030 cudaGraphAddMemAllocNode_v11040""",
    "module": """cuModuleLoadData cudaFuncSetAttribute_v9000 cuKernelGetAttribute cuLibraryLoadData
        cudaGetFuncBySymbol_v11000 cuModuleGetLoadingMode cuLinkCreate""",
    "other": """cudaGetDevice_v3020 cudaSetDevice_v3020 cuCtxGetCurrent cudaStreamCreate_v3020
        cudaGraphicsMapResources_v3020 cudaMemGetInfo_v3020 cuInit [unnamed] MPI_Send""",
}


@pytest.mark.parametrize("kind", CLASSES)
def test_functions_of_runtime_and_driver_are_told_by_their_names(kind):
    names = CLASSES[kind].split()
    assert {name: classify_api(name) for name in names} == dict.fromkeys(names, kind)


def test_every_class_has_functions_and_a_meaning():
    assert CLASSES.keys() == API_CLASSES.keys()
    assert all(API_CLASSES.values())
    assert {*LAUNCH_CLASSES, *WAITING_CLASSES} < API_CLASSES.keys()


@pytest.mark.parametrize(
    ("overhead_type", "owner", "kind"),
    [
        (2, APPLICATION, "JIT compilation"),
        (3, PROFILER, "buffer flush"),
        (4, PROFILER, "instrumentation"),
        (5, PROFILER, "resource management"),
        (6, APPLICATION, "module loading"),
        (7, APPLICATION, "lazy function loading"),
        (8, APPLICATION, "command buffer full"),
    ],
)
@pytest.mark.parametrize("table", ["profiler_overheads", "cuda_overheads"])
def test_a_type_says_whose_it_is_whatever_the_table_and_the_name(table, overhead_type, owner, kind):
    assert overhead_kind(table, overhead_type, "CUPTI: Something") == (owner, kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CUPTI: Buffer flush", "buffer flush"),
        ("CUPTI Buffer flush", "buffer flush"),
        ("CUDA profiling data flush", "CUDA profiling data flush"),
        ("NVTX profiling initialization", "NVTX profiling initialization"),
        ("TLS allocation", "TLS allocation"),
        ("Unknown", "unknown"),
        (None, "unknown"),
        ("", "unknown"),
    ],
)
@pytest.mark.parametrize("overhead_type", [NULL_INT, 0, 1])
def test_without_a_type_the_table_says_whose_it_is_and_the_name_what(overhead_type, name, kind):
    assert overhead_kind("profiler_overheads", overhead_type, name) == (PROFILER, kind)
    assert overhead_kind("cuda_overheads", overhead_type, name) == (APPLICATION, kind)
