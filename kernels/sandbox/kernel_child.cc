// The process that runs kernels (kernels/sandbox/kernel_host.h).
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <latch>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "kernels/machine.h"
#include "kernels/median.h"
#include "kernels/sandbox/device_tensors.h"
#include "kernels/sandbox/guarded_block.h"
#include "kernels/sandbox/kernel.h"
#include "kernels/sandbox/kernel_board.h"
#include "kernels/sandbox/python_server.h"
#include "kernels/sandbox/task_runner.h"
#include "kernels/sandbox/task_watch.h"
#include "kernels/simt/source_memory.h"

namespace verbatim::sandbox {
namespace {

constexpr int kDeadBySignal = 200;  // the exit code with which the handler ends

Board* the_board = nullptr;  // for the signal handler

// Addresses in the kernel's library, from where it was loaded, of code that has been interrupted: the instruction's
// own, then its callers'. Places are where a call returns to, so that of the instruction is one behind it.
void note_places(const void* context) {
    constexpr int kMost = 48;
    void* frames[kMost];
    const int count = backtrace(frames, kMost);
    size_t used = 0;
    Dl_info of;
    const auto note = [&](uintptr_t address) {
        const bool is_mine = the_board->library_base != 0 && dladdr(reinterpret_cast<void*>(address), &of) != 0 &&
                             reinterpret_cast<uintptr_t>(of.dli_fbase) == the_board->library_base;
        if (is_mine && used < kFrames) the_board->fault_places[used++] = address - the_board->library_base;
    };
#if defined(__x86_64__)
    const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
    the_board->fault_is_write = (registers[REG_ERR] & 2) != 0;
    note(static_cast<uintptr_t>(registers[REG_RIP]) + 1);
#else
    (void)context;
#endif
    for (int i = 0; i < count; ++i) note(reinterpret_cast<uintptr_t>(frames[i]));
}

// The parent reads the rest off the board.
void note_signal(int signal, siginfo_t* info, void* context) {
    the_board->fault_signal = signal;
    the_board->fault_address = reinterpret_cast<uintptr_t>(info->si_addr);
    note_places(context);
    _exit(kDeadBySignal);
}
void note_other_signal(int signal, void* info, void* context) {
    note_signal(signal, static_cast<siginfo_t*>(info), context);
}

void catch_signals() {
    constexpr size_t kStack = 1 << 16;
    static std::byte memory[kStack];
    const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = kStack};
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = note_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // SIGUSR1: the parent has waited long enough.
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGUSR1}) {
        sigaction(signal, &action, nullptr);
    }
    void* frame;
    (void)backtrace(&frame, 1);  // it loads its library now, and not in a handler
}

// Processes that the kernel starts cannot leave the group, and are reparented to this process. None of them can signal
// a process outside the group.
void keep_in_group() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    constexpr uint32_t kNo = SECCOMP_RET_ERRNO | EPERM;
    sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsid, 5, 0),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpgid, 4, 0),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 2),
                            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),  // kill(0, signal): the group
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                            BPF_STMT(BPF_RET | BPF_K, kNo)};
    const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
    // A machine that knows no filters runs the kernel as well.
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

void limit_memory(uint64_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // What is mapped already, the shared memory above all, does not count.
    uint64_t pages = 0;
    if (FILE* file = fopen("/proc/self/statm", "r"); file != nullptr) {
        if (fscanf(file, "%lu", &pages) != 1) pages = 0;
        fclose(file);
    }
    const rlimit limit{pages * kPage + bytes, pages * kPage + bytes};
    setrlimit(RLIMIT_AS, &limit);
#else
    (void)bytes;
#endif
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    // Of every file, and so of what is printed.
    constexpr rlim_t kMostFileBytes = rlim_t{16} << 20;
    const rlimit files{kMostFileBytes, kMostFileBytes};
    setrlimit(RLIMIT_FSIZE, &files);
    signal(SIGXFSZ, SIG_DFL);  // beyond it the kernel ends
}

class KernelChild {
public:
    KernelChild(Board& board, const std::string& library) : board_(board) {
        static_assert(sizeof(AbiArgs) <= kPage);
        void* const page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED, "no memory for arguments");
        board_.early_args = static_cast<std::byte*>(page);
        if (library.empty()) return;
        void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) why_.set(dlerror());
        if (handle == nullptr) return;
        at_ = reinterpret_cast<decltype(at_)>(dlsym(handle, "verbatim_kernel_at"));
        if (at_ == nullptr) why_.set("it does not export verbatim_kernel_at (kernels/sandbox/kernel.h)");
        is_cuda_source_ = dlsym(handle, "verbatim_is_cuda_source") != nullptr;
        find_static_memory(handle);
    }

    void answer() {
        board_.answer = Answer::kYes;
        board_.end = CallEnd::kDone;
        board_.detail.set("");
        board_.num_findings = 0;
        board_.num_notes = 0;
        board_.num_places = 0;
        board_.clash.reset();
        if (board_.question == Question::kDescribe) return describe();
        protect();
        if (board_.python != nullptr) return call_python();
        const verbatim_kernel* kernel = board_.kernel < 0 ? board_.builtin : at_(board_.kernel);
        std::string_view(kernel->machine) == "cuda" ? call_on_emulator(kernel) : call_on_cpu(kernel);
        look_for_processes();
    }

private:
    // The library's pages that its code can write.
    void find_static_memory(void* handle) {
        const link_map* library = nullptr;
        if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&library)) != 0) return;
        board_.library_base = library->l_addr;
        dl_iterate_phdr(
            [](dl_phdr_info* info, size_t, void* mine) {
                auto& child = *static_cast<KernelChild*>(mine);
                if (info->dlpi_addr != child.board_.library_base) return 0;
                uintptr_t begin = 0, end = 0, read_only_end = 0;
                for (const ElfW(Phdr) & part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
                    const uintptr_t first = info->dlpi_addr + part.p_vaddr;
                    if (part.p_type == PT_GNU_RELRO) read_only_end = first + part.p_memsz;
                    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
                    begin = first;
                    end = first + part.p_memsz;
                }
                const uintptr_t page = kPage;
                begin = std::max(begin, read_only_end) / page * page;
                end = (end + page - 1) / page * page;
                child.static_memory_ = {reinterpret_cast<std::byte*>(begin), end - begin};
                return 1;
            },
            this);
        board_.library_begin = static_memory_.begin;
        board_.library_end = static_memory_.begin + static_memory_.num_bytes;
    }

    // A copy of this process that comes back from the kernel has nothing to say here.
    void look_for_processes() {
        if (getpid() != pid_) _exit(0);
        if (python_.has_process() || waitpid(-1, nullptr, WNOHANG) < 0) return;  // there has been none
        finish(CallEnd::kFailed, "run() starts a process");
    }

    void describe() {
        board_.num_kernels = 0;
        if (at_ == nullptr) {
            board_.answer = Answer::kNotLoaded;
            board_.detail.set(why_.get());
            return;
        }
        for (int32_t i = 0; i < static_cast<int32_t>(kBoardKernels); ++i) {
            const verbatim_kernel* kernel = at_(i);
            if (kernel == nullptr) break;
            const auto text = [](const char* from) { return std::string_view(from != nullptr ? from : ""); };
            Board::Kernel& on_board = board_.kernels[board_.num_kernels++];
            on_board.name.set(text(kernel->name));
            on_board.operation.set(text(kernel->operation));
            on_board.profile.set(text(kernel->profile));
            on_board.machine.set(text(kernel->machine));
            const bool known = kernel->abi >= 1 && kernel->abi <= VERBATIM_KERNEL_ABI;  // of an earlier one: K6
            const bool whole = known && kernel->run != nullptr;
            if (whole && text(kernel->name).empty()) {
                board_.answer = Answer::kNotLoaded;
                board_.detail.set(fmt::format("kernel {} has no name", i));
            } else if (!whole) {
                board_.answer = Answer::kNotLoaded;
                board_.detail.set(fmt::format("kernel {} is of ABI {}, wanted 1 ... {}, with a run function", i,
                                              kernel->abi, VERBATIM_KERNEL_ABI));
            }
        }
    }

    void protect() const {
        const auto set = [](std::byte* from, const std::byte* to, int rights) {
            mprotect(from, static_cast<size_t>(to - from), rights);
        };
        set(board_.board_end, board_.tensors_begin, PROT_NONE);
        set(board_.tensors_begin, board_.tensors_end, PROT_READ | PROT_WRITE);
        set(board_.tensors_end, board_.shared_end, PROT_NONE);
        for (int64_t i = 0; i < board_.num_guards; ++i) mprotect(board_.guards[i], kPage, PROT_NONE);
    }

    void finish(CallEnd end, std::string_view detail) {
        board_.end = end;
        board_.detail.set(detail);
    }

    verbatim_run run_of(verbatim_args args, void* workspace, const void* packed) {
        tasks_.set(board_.options);
        return {.args = args,
                .workspace = workspace,
                .packed = packed,
                .parallel = TaskRunner::parallel,
                .num_threads = board_.options.num_threads,
                .block_threads = board_.options.block_threads,
                .device = nullptr,
                .host = &tasks_};
    }
    // The workspace size that the kernel requests. An invalid size is an error.
    struct OwnBytes {
        int64_t workspace = 0, packed = 0;
        [[nodiscard]] bool are_counts() const { return workspace >= 0 && packed >= 0; }
    };
    OwnBytes own_bytes(const verbatim_kernel* kernel, verbatim_args args) {
        OwnBytes bytes;
        if (kernel->workspace_bytes != nullptr) {
            bytes.workspace = kernel->workspace_bytes(kernel, args, board_.options.num_threads);
        }
        if (kernel->pack != nullptr && kernel->packed_bytes != nullptr) {
            bytes.packed = kernel->packed_bytes(kernel, args);
        }
        if (bytes.packed < 0) finish(CallEnd::kFailed, fmt::format("packed_bytes() gives {}", bytes.packed));
        if (bytes.workspace < 0) finish(CallEnd::kFailed, fmt::format("workspace_bytes() gives {}", bytes.workspace));
        return bytes;
    }
    [[nodiscard]] uint8_t workspace_fill() const { return board_.options.workspace_poison == 0 ? 0xFF : 0x3C; }

    // supports() may not touch tensors; the arguments of workspace_bytes(), packed_bytes() and pack() are gone when
    // run() begins.
    void call_on_cpu(const verbatim_kernel* kernel) {
        mprotect(board_.early_args, kPage, PROT_READ | PROT_WRITE);
        const verbatim_args early_args = board_.operation->bind(board_.placed, *new (board_.early_args) AbiArgs);
        if (!supports_without_tensors(kernel, early_args)) return finish(CallEnd::kUnsupported, "");
        const OwnBytes bytes = own_bytes(kernel, early_args);
        if (!bytes.are_counts()) return;
        const GuardedBlock workspace(bytes.workspace, workspace_fill());
        GuardedBlock packed(bytes.packed, 0xFF);
        board_.child_memory = {workspace.as_tensor(), packed.as_tensor()};
        if (kernel->pack != nullptr) kernel->pack(kernel, early_args, packed.data());
        mprotect(board_.early_args, kPage, PROT_NONE);
        AbiArgs abi;
        const verbatim_args args = board_.operation->bind(board_.placed, abi);
        const verbatim_run run = run_of(args, workspace.data(), kernel->pack != nullptr ? packed.data() : nullptr);
        if (board_.options.watches_tasks) return watch_tasks(kernel, run, workspace);
        if (board_.question != Question::kTime) packed.keep();
        const FloatModes modes = float_modes();
        const size_t threads = num_threads();
        const int32_t code = timed_or_once([&] { return kernel->run(kernel, &run); });
        if (const FloatModes left = float_modes(); left != modes) {
            set_float_modes(modes);
            return finish(CallEnd::kFailed, fmt::format("run() {}: its caller's rounding or subnormals are others from "
                                                        "then on",
                                                        left_text(left, modes)));
        }
        if (!tasks_.left_by_task().empty()) {
            return finish(CallEnd::kFailed,
                          tasks_.left_by_task() + ": its thread's rounding or subnormals are others from then on");
        }
        if (board_.question != Question::kTime) wait_for_threads_beyond(threads);
        if (!workspace.intact()) return finish(CallEnd::kOutside, "writes outside of its workspace");
        if (!packed.intact()) return finish(CallEnd::kOutside, "writes outside of its packed weights");
        if (packed.has_changed()) return finish(CallEnd::kInputChanged, "run() changes its packed weights");
        if (code != 0) finish(CallEnd::kFailed, fmt::format("run() returns {}", code));
    }
    bool supports_without_tensors(const verbatim_kernel* kernel, verbatim_args args) {
        bool supports = true;
        if (kernel->supports != nullptr)
            without_tensors(Moment::kSupports, [&] { supports = kernel->supports(kernel, args) != 0; });
        return supports;
    }
    // What touches a tensor meanwhile crashes.
    template <typename Act>
    void without_tensors(Moment moment, const Act& act) {
        board_.moment = moment;
        mprotect(board_.tensors_begin, static_cast<size_t>(board_.tensors_end - board_.tensors_begin), PROT_NONE);
        act();
        protect();
        board_.moment = Moment::kRun;
    }
    static size_t num_threads() {
        return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
    }
    // Threads that run() has left behind may wait for work, and may not touch tensors: those that end do so soon.
    void wait_for_threads_beyond(size_t num_before) {
        constexpr int kMostWaits = 20;
        if (num_threads() <= num_before) return;
        without_tensors(Moment::kAfterRun, [&] {
            for (int i = 0; i < kMostWaits && num_threads() > num_before; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    }

    void call_python() {
        const auto call = [this]() -> int32_t {
            const CallResult result = python_.call(*board_.python, board_);
            finish(result.end, result.detail);
            return result.end == CallEnd::kDone ? 0 : 1;
        };
        timed_or_once(call);
    }

    // The second call counts: static variables have their first values by then.
    void watch_tasks(const verbatim_kernel* kernel, const verbatim_run& run, const GuardedBlock& workspace) {
        const auto before = changed_in_place();
        int32_t code = kernel->run(kernel, &run);
        put_back(before);
        std::vector<WatchedRange> ranges = {static_memory_, workspace.pages()};
        for (int64_t i = 0; i < board_.num_tensors; ++i) {
            const BoardTensor& tensor = board_.tensors[i];
            if (tensor.data == nullptr || tensor.role == Role::kIn || tensor.num_bytes == 0) continue;
            const auto begin = reinterpret_cast<uintptr_t>(tensor.data) / kPage * kPage;
            const auto end = (reinterpret_cast<uintptr_t>(tensor.data) + tensor.num_bytes + kPage - 1) / kPage * kPage;
            ranges.push_back({reinterpret_cast<std::byte*>(begin), end - begin});
        }
        // With a second thread in the process the C library's locks are locked instructions.
        std::latch is_done(1);
        const std::jthread other([&is_done] { is_done.wait(); });
        TaskWatch watch(ranges, note_other_signal);
        tasks_.watch(&watch);
        if (code == 0) code = kernel->run(kernel, &run);
        tasks_.watch(nullptr);
        is_done.count_down();
        if (code != 0) return finish(CallEnd::kFailed, fmt::format("run() returns {}", code));
        if (!watch.clash()) return;
        board_.clash = watch.clash();
        board_.clash_places = {place_of_instruction(watch.clash()->first.code),
                               place_of_instruction(watch.clash()->second.code)};
        finish(CallEnd::kTaskRace, "");
    }
    // 0: not in the library. A place is where a call returns to, and so one behind the instruction.
    [[nodiscard]] uint64_t place_of_instruction(uintptr_t code) const {
        Dl_info of;
        const bool is_mine = board_.library_base != 0 && dladdr(reinterpret_cast<const void*>(code), &of) != 0 &&
                             reinterpret_cast<uintptr_t>(of.dli_fbase) == board_.library_base;
        return is_mine ? code + 1 - board_.library_base : 0;
    }

    // Static memory of the library cannot be written while a launch runs.
    void guard_launches(simt::Emulator& emulator) {
        emulator.watch_launches([this](bool begins) {
            board_.in_launch = begins;
            if (static_memory_.num_bytes == 0) return;
            mprotect(static_memory_.begin, static_memory_.num_bytes, begins ? PROT_READ : PROT_READ | PROT_WRITE);
        });
    }

    // Packs on the host, from the host's tensors, and copies what results to the device.
    void* packed_on_device(const verbatim_kernel* kernel, size_t num_bytes, DeviceTensors& tensors,
                           simt::Emulator& emulator) {
        if (kernel->pack == nullptr) return nullptr;
        AbiArgs abi;
        std::vector<std::byte> host(std::max<size_t>(num_bytes, 1));
        kernel->pack(kernel, board_.operation->bind(board_.placed, abi), host.data());
        void* const packed = tensors.allocate(num_bytes, 1);
        simt::Memory& memory = emulator.memory_of(packed);
        const auto before = static_cast<size_t>(static_cast<std::byte*>(packed) - memory.address());
        std::memcpy(memory.bytes() + before, host.data(), num_bytes);
        memory.fill(before, num_bytes);
        return packed;
    }

    void call_on_emulator(const verbatim_kernel* kernel) {
        simt::Emulator emulator(board_.options.schedule, board_.options.schedule_seed);
        Placed placed = board_.placed;
        // Ours convert on the host what a file's kernels are given as it is.
        const bool is_of_file = board_.kernel >= 0;
        board_.device = {};
        board_.device_memory = {};
        board_.in_launch = false;
        std::optional<simt::SourceDevice> source;
        if (is_of_file && is_cuda_source_) {
            source.emplace(emulator, static_memory_.begin, static_memory_.num_bytes,
                           std::max(board_.options.num_threads, 1));
        }
        const bool hides = is_of_file && !is_cuda_source_;
        DeviceTensors tensors(board_, emulator, placed, hides, source ? &*source : nullptr);
        AbiArgs abi;
        const verbatim_args args = board_.operation->bind(placed, abi);
        if (kernel->supports != nullptr && kernel->supports(kernel, args) == 0) {
            return finish(CallEnd::kUnsupported, "");
        }
        const OwnBytes bytes = own_bytes(kernel, args);
        if (!bytes.are_counts()) return;
        void* const packed = packed_on_device(kernel, static_cast<size_t>(bytes.packed), tensors, emulator);
        void* const workspace = tensors.allocate(static_cast<size_t>(bytes.workspace), 1);
        if (hides) {
            board_.device_memory[0] = {static_cast<std::byte*>(workspace), bytes.workspace, 1, Role::kInOut, -1, 0, 0};
            board_.device_memory[1] = {static_cast<std::byte*>(packed), bytes.packed, 1, Role::kIn, -1, 0, 0};
            guard_launches(emulator);
        }
        verbatim_run run = run_of(args, workspace, packed);
        run.device = &emulator;
        emulator.watch_findings([this](const simt::Finding& finding) { tell_finding(finding); });
        if (board_.options.count_accesses) emulator.count_accesses();
        if (board_.options.notes_ordering) emulator.note_ordering(board_.options.left_out);
        const int32_t code = timed_or_once([&] { return kernel->run(kernel, &run); });
        if (source) source->end_call();
        tensors.bring_back();
        if (code != 0) finish(CallEnd::kFailed, fmt::format("run() returns {}", code));
        board_.counts = emulator.access_counts();
        if (board_.options.notes_ordering) tell_places(emulator.ordering().met());
        if (board_.num_findings > 0) finish(CallEnd::kFinding, board_.findings[0].text);
        tell_notes(emulator.notes());
        tell_notes(tensors.notes(board_.operation->tensors(board_.placed.sizes)));
    }

    void tell_notes(const std::vector<std::string>& notes) {
        for (const std::string& note : notes) {
            if (board_.num_notes < std::ssize(board_.notes)) board_.notes[board_.num_notes++].set(note);
        }
    }

    void tell_places(const std::vector<simt::OrderingPlace>& met) {
        CHECK_LE(met.size(), kBoardPlaces);
        for (const simt::OrderingPlace& place : met) {
            Board::Place& on_board = board_.places[board_.num_places++];
            on_board.what.set(place.what);
            on_board.file.set(place.file);
            on_board.line = place.line;
            on_board.column = place.column;
        }
    }

    // The frames that lie in the kernel's own library, from where it was loaded.
    std::array<uint64_t, kFrames> places_in_library(const std::vector<const void*>& frames) const {
        std::array<uint64_t, kFrames> places{};
        size_t count = 0;
        for (const void* frame : frames) {
            Dl_info of_frame, of_library;
            const bool known = at_ != nullptr && dladdr(frame, &of_frame) != 0 &&
                               dladdr(reinterpret_cast<const void*>(at_), &of_library) != 0;
            if (!known || of_frame.dli_fbase != of_library.dli_fbase || count == kFrames) continue;
            places[count++] =
                static_cast<uint64_t>(static_cast<const char*>(frame) - static_cast<char*>(of_frame.dli_fbase));
        }
        return places;
    }

    void tell_finding(const simt::Finding& finding) {
        if (board_.num_findings == kBoardFindings) return;
        const auto at = static_cast<size_t>(board_.num_findings++);
        board_.finding_kinds[at] = finding.kind;
        board_.findings[at].set(finding.text);
        board_.frames[at] = places_in_library(finding.frames);
    }

    // --- timing

    // What changes in place is put back before every call.
    [[nodiscard]] std::vector<std::vector<std::byte>> changed_in_place() const {
        std::vector<std::vector<std::byte>> before;
        for (int64_t i = 0; i < board_.num_tensors; ++i) {
            const BoardTensor& tensor = board_.tensors[i];
            const bool changes = tensor.data != nullptr && tensor.role == Role::kInOut;
            before.emplace_back(tensor.data, tensor.data + (changes ? tensor.num_bytes : 0));
        }
        return before;
    }
    void put_back(const std::vector<std::vector<std::byte>>& before) const {
        for (size_t i = 0; i < before.size(); ++i) std::ranges::copy(before[i], board_.tensors[i].data);
    }

    int32_t timed_or_once(const std::function<int32_t()>& call) {
        return board_.question == Question::kTime ? time(call) : call();
    }
    int32_t time(const std::function<int32_t()>& call) {
        using Clock = std::chrono::steady_clock;
        const auto before = changed_in_place();
        const auto caches = static_cast<size_t>(2 * last_level_cache_bytes());
        const size_t other = board_.timing.cold_bytes > 0 ? board_.timing.cold_bytes : caches;
        // A cold call needs none but the first, whose other data are new.
        const int warmups = !board_.timing.cold ? 3 : elsewhere_.size() == other ? 0 : 1;
        if (board_.timing.cold) elsewhere_.resize(other);
        const auto begin = Clock::now();
        const auto since = [](Clock::time_point from) {
            return std::chrono::duration<double>(Clock::now() - from).count();
        };
        board_.num_times = 0;
        const int64_t most = std::min<int64_t>(board_.timing.max_calls, kMaxTimes);
        for (int64_t i = -warmups; i < most; ++i) {
            put_back(before);
            if (board_.timing.cold) std::ranges::fill(elsewhere_, static_cast<std::byte>(i));
            const auto call_begin = Clock::now();
            if (const int32_t code = call(); code != 0) return code;
            // Of a long call one is enough to warm up.
            if (i < -1 && since(begin) > board_.timing.max_seconds / 2) i = -1;
            if (i >= 0) board_.times_s[board_.num_times++] = since(call_begin);
            if (since(begin) > board_.timing.max_seconds && i >= 0) break;
            const bool is_time_to_look = i % 16 == 15;
            if (is_time_to_look && median_is_known({board_.times_s.begin(), board_.times_s.begin() + board_.num_times}))
                break;
        }
        return 0;
    }

    Board& board_;
    const verbatim_kernel* (*at_)(int32_t index) = nullptr;
    pid_t pid_ = getpid();
    BoardText<2048> why_{};
    TaskRunner tasks_;
    PythonServer python_;
    std::vector<std::byte> elsewhere_;  // what fills the caches before a cold call; kept, for it is large
    WatchedRange static_memory_;
    bool is_cuda_source_ = false;
};

}  // namespace

void run_kernel_child(Board& board, const std::string& library, const HostLimits& limits, BoardPipes pipes) noexcept {
    setpgid(0, 0);  // what the kernel starts ends with it
    keep_in_group();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    the_board = &board;
    board.library_base = 0;
    board.library_begin = board.library_end = nullptr;
    // A process that the kernel starts does not keep them open.
    for (const int pipe : {pipes.questions, pipes.answers}) fcntl(pipe, F_SETFD, FD_CLOEXEC);
    catch_signals();
    limit_memory(limits.memory_bytes);
    KernelChild child(board, library);
    char byte = 0;
    while (read(pipes.questions, &byte, 1) == 1) {
        child.answer();
        if (write(pipes.answers, &byte, 1) != 1) break;
    }
    _exit(0);
}

}  // namespace verbatim::sandbox
