// kernels/simt/source_threads.h: owns what CUDA source calls on the emulator (kernels/sandbox/cuda/source.h). The
// source's pointers are the host's; the compiler calls access() before each read and write of memory, so that every
// access of a kernel is checked like one through a view, whatever its pointer's type.
//
//   X1  an access to device or shared memory is checked for bounds, alignment, initialisation and order (E1); one to
//       anything else (a thread's stack, constants) is not
//   X2  an illegal access is found and then made: device memory lies between spare bytes, which nothing else uses
//
// No other header of the emulator is included: what this one inlines is checked like the kernel's own code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string_view>

namespace verbatim::cuda_source {

using Place = std::source_location;

struct Index {
    constexpr Index(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth) {}
    unsigned x, y, z;
};
// REQUIRES of all but access(): a launch runs.
[[nodiscard]] Index thread_index();
[[nodiscard]] Index block_index();
[[nodiscard]] Index block_size();
[[nodiscard]] Index grid_size();
[[nodiscard]] int lane();

// Before a read or a write. Outside of a launch none of device memory is legal.
void access(const void* address, size_t num_bytes, bool is_write);
// The same of a volatile object: in device memory its reads are atomic, and its writes behind a __threadfence (a flag)
// or of 8 bytes (a flag and its value).
void volatile_access(const void* address, size_t num_bytes, bool is_write);
// Lets the block's other threads and other blocks run.
void sleep();
// Among which threads an operation is atomic, or a fence orders. A cluster is a block where there are none; else it is
// taken as the device.
enum class Scope : uint8_t { kBlock, kCluster, kDevice };
// Before an atomic read and write.
void atomic_access(const void* address, size_t num_bytes, Scope scope = Scope::kDevice);
// Before a read that a GPU may answer from a cache of read-only memory (__ldg, ld.global.nc): found, if this kernel has
// written it.
void read_only(const void* address, size_t num_bytes);
// Before a kernel is called, its address is known and its arguments are the thread's: from here it touches no memory
// of the host.
void call_begins();
// First in a kernel's body: its __cluster_dims__, zeros without. Outside of a launch it does nothing: behind a macro
// with __global__ the body may be another function's.
void kernel_begins(unsigned cluster_x = 0, unsigned cluster_y = 1, unsigned cluster_z = 1);
// __launch_bounds__: found, if the block has more threads.
void launch_bounds(int most_threads, int least_blocks = 0, int most_cluster = 0);
// cudaFuncSetAttribute: dynamic shared memory of the kernel with this address, and clusters of more than 8 blocks.
void allow_shared(const void* kernel, size_t num_bytes);
void allow_large_clusters(const void* kernel);
// Before ld.acquire, st.release and their like. `orders`: a store releases what the thread did before; a load acquires
// in any case, as atomic operations do.
void ordered_access(const void* address, size_t num_bytes, bool is_write, bool orders, Scope scope = Scope::kDevice);
// Before an atomic operation that releases.
void releasing_access(const void* address, size_t num_bytes, Scope scope = Scope::kDevice);
// cuTensorMapEncodeTiled, into 128 bytes. False: the driver refuses it.
struct MapOfTensor {
    unsigned element_bytes, rank, swizzle_bytes;  // swizzle: 16 is none
    void* address;
    const uint64_t* dims;
    const uint64_t* strides;  // [rank - 1], bytes
    const uint32_t* box;
    const uint32_t* steps;
};
[[nodiscard]] bool encode_map(void* to, const MapOfTensor& tensor);
// __threadfence: with atomic operations it orders blocks, unless its scope is the block.
void fence(Scope scope = Scope::kDevice);

// Waits for the launches before a dependent one.
void wait_previous(Place where);
// Multiprocessors that the call asks a grid to fill.
[[nodiscard]] int num_multiprocessors();

void sync_block(Place where);
void sync_warp(unsigned mask, Place where);
[[nodiscard]] uint64_t shuffle(unsigned mask, uint64_t value, int source_lane, Place where);
[[nodiscard]] unsigned vote(unsigned mask, bool mine, Place where);

// The lanes of the warp that are active here together (Emulator::active_lanes).
[[nodiscard]] unsigned active_lanes(Place where);
// A matrix that a warp loads or stores: its first element's address, and its rows' lengths.
void look_at_matrix(const void* first, size_t row_bytes);
[[nodiscard]] bool is_shared(const void* address);
[[nodiscard]] bool is_cooperative_launch();
// Before this_grid().sync().
void look_at_grid_sync(Place where);

// A static array that the block shares; cells are the smallest elements that threads write separately. `alignment`: as
// declared.
void share(void* data, size_t num_bytes, size_t cell_bytes, size_t alignment);
// The block's dynamic shared memory.
[[nodiscard]] void* dynamic_shared();

// A `__device__` variable: device memory that all calls share. Called when the library is loaded.
bool device_variable(void* data, size_t num_bytes, size_t cell_bytes);

// PTX's address of shared memory (__cvta_generic_to_shared), and back.
[[nodiscard]] uint32_t shared_address(const void* pointer);
[[nodiscard]] void* shared_pointer(uint32_t address);
// laneid, tid.x, ctaid.x, ...
[[nodiscard]] uint64_t special_register(std::string_view name);
// Runs an `asm`'s PTX (kernels/simt/ptx_program.h) with its operands, which it changes. An operand
// that is not written before is an output.
// `places`: of outputs that the thread may touch later, null: not needed; wgmma's sums are held there.
struct PtxOperands {
    uint64_t* values;
    const bool* are_written;
    std::byte* const* places;
    size_t count;
};
void run_ptx(Place where, const char* text, const PtxOperands& operands);
// A copy of 4, 8 or 16 bytes that lands when its group is waited for; all but `read` bytes are zeros.
void copy_async(void* to, const void* from, size_t count, size_t read);
void commit_async();
void wait_async(size_t num_pending, Place where);

struct Config {
    Config(Index grid_size, Index block, size_t bytes = 0, const void* in_stream = nullptr)
        : grid(grid_size), threads(block), shared_bytes(bytes), stream(in_stream) {}
    Index grid, threads;
    size_t shared_bytes;
    const void* stream;           // kernels/simt/source_streams.h
    Index cluster{1};             // blocks
    bool is_cooperative = false;  // its blocks may wait for each other
    bool is_dependent = false;    // it may begin before the launches before it have ended
};
// False in a kernel, where a launch is found. REQUIRES: a call of run().
[[nodiscard]] bool may_launch(const char* name);
// Calls `body` in every thread of the grid, on the emulator of the running call. `kernel`: its address; null if it is
// not known, and then it may have as much shared memory as any kernel.
void launch(const char* name, const void* kernel, const Config& config, const std::function<void()>& body);

// By one thread of the device, in a launch with the call's name. A copy to the host is found: run() may only launch.
void set_memory(void* to, unsigned char value, size_t num_bytes, const void* stream);
void copy_memory(void* to, const void* from, size_t num_bytes, bool to_host, const void* stream);

}  // namespace verbatim::cuda_source
