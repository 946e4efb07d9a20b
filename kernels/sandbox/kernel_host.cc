#include "kernels/sandbox/kernel_host.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

#include "engine/base/check.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/gpu_program.h"
#include "kernels/sandbox/group_time.h"
#include "kernels/sandbox/kernel_board.h"

namespace verbatim::sandbox {
namespace {

constexpr int64_t kBefore = 64;  // known bytes before a tensor
constexpr auto kKnown = static_cast<std::byte>(0xA5);
constexpr size_t kSharedBytes = size_t{6} << 30;   // of addresses; memory is taken when it is touched
constexpr int64_t kBeforeAll = int64_t{16} << 20;  // that cannot be touched, between the board and the first tensor
constexpr int64_t kRowGap = 3;                     // elements between rows of Placing::kOdd, or
constexpr int64_t kVector = 4;                     // so many that rows are multiples of this apart

int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// Where a tensor lies, and what its whole area holds before the call.
struct Area {
    std::byte* begin = nullptr;
    int64_t size = 0;
    std::byte* data = nullptr;
    int64_t unit_bytes = 0;
    int64_t stride_bytes = 0;
    int64_t num_units = 0;
    std::vector<std::byte> before;

    [[nodiscard]] std::byte* unit(int64_t i) const { return data + i * stride_bytes; }
    [[nodiscard]] int64_t data_bytes() const {
        return num_units == 0 ? 0 : (num_units - 1) * stride_bytes + unit_bytes;
    }
};

// Lays a call out behind the board.
class Layout {
public:
    Layout(Board& board, const Arguments& call, const CallOptions& options)
        : board_(board), call_(call), options_(options), areas_(call.tensors.size()) {
        board.board_end = reinterpret_cast<std::byte*>(&board) + round_up(sizeof(Board), kPage);
        board.shared_end = reinterpret_cast<std::byte*>(&board) + kSharedBytes;
        next_ = board.tensors_begin = board.board_end + kBeforeAll;
        board.placed = {};
        board.placed.sizes = call.sizes;
        board.placed.scalars = call.scalars;
        board.placed.num_items = std::ssize(call.item_rows);
        board.placed.num_rows = call.num_rows();
        board.num_tensors = std::ssize(call.tensors);
        board.num_guards = 0;
        for (size_t i = 0; i < call.tensors.size(); ++i) place(i);
        board.tensors_end = next_;
    }

    // "" when nothing but outputs has changed. Sets `end`.
    [[nodiscard]] std::string difference(CallEnd& end) const {
        for (size_t i = 0; i < areas_.size(); ++i) {
            const std::string found = difference_of(i, end);
            if (!found.empty()) return found;
        }
        return "";
    }
    // The call with what the kernel has left in its outputs.
    [[nodiscard]] Arguments after() const {
        Arguments after = call_;
        for (size_t i = 0; i < areas_.size(); ++i) {
            Tensor& tensor = after.tensors[i];
            if (tensor.spec.role == Role::kIn) continue;
            for (int64_t unit = 0; unit < tensor.num_units; ++unit) {
                std::copy_n(areas_[i].unit(unit), tensor.unit_bytes(),
                            tensor.bytes.begin() + unit * tensor.unit_bytes());
            }
        }
        return after;
    }
    // "4 bytes behind `weight`"
    [[nodiscard]] std::string place_of(uintptr_t address) const {
        for (size_t i = 0; i < areas_.size(); ++i) {
            const Area& area = areas_[i];
            if (area.begin == nullptr) continue;
            const auto first = reinterpret_cast<uintptr_t>(area.data);
            const auto end = first + static_cast<uintptr_t>(area.data_bytes());
            const char* name = call_.tensors[i].spec.name;
            if (address >= first && address < end) return fmt::format("byte {} of `{}`", address - first, name);
            const auto area_end = reinterpret_cast<uintptr_t>(area.begin) + static_cast<uintptr_t>(area.size + kPage);
            if (address >= end && address < area_end) return fmt::format("byte {} behind `{}`", address - end, name);
            const auto area_begin = reinterpret_cast<uintptr_t>(area.begin) - kPage;
            if (address >= area_begin && address < first) {
                return fmt::format("byte {} before `{}`", first - address, name);
            }
        }
        return "";
    }

private:
    [[nodiscard]] size_t index_of(std::string_view name) const {
        const auto is_it = [&](const Tensor& tensor) { return tensor.spec.name == name; };
        return static_cast<size_t>(std::ranges::find_if(call_.tensors, is_it) - call_.tensors.begin());
    }

    // For a kernel that looks at rows alone, all rows are aligned, none, or every other tensor's, by the shape.
    [[nodiscard]] int64_t row_gap(size_t i) const {
        const int64_t width = call_.tensors[i].spec.width;
        const int64_t turn = std::accumulate(call_.sizes.begin(), call_.sizes.end(), int64_t{0}) % 3;
        const bool is_whole = turn == 1 || (turn == 2 && i % 2 == 0);
        return is_whole ? round_up(width + 1, kVector) - width : kRowGap;
    }

    void place(size_t i) {
        const Tensor& tensor = call_.tensors[i];
        const bool strided = tensor.spec.strided && options_.placing == Placing::kOdd;
        const int64_t element = bytes_of(tensor.spec.dtype);
        const int64_t stride = tensor.spec.width + (strided ? row_gap(i) : 0);
        Area& area = areas_[i];
        area.unit_bytes = tensor.unit_bytes();
        area.stride_bytes = stride * element;
        area.num_units = tensor.num_units;
        board_.tensors[i] = {nullptr, 0, element, tensor.spec.role, -1, area.unit_bytes, area.stride_bytes};
        if (tensor.spec.width == 0) return;
        if (options_.in_place && tensor.spec.lies_in != nullptr) {
            const size_t other = index_of(tensor.spec.lies_in);
            if (call_.tensors[other].spec.width != 0) {
                area = areas_[other];
                board_.tensors[other].role = Role::kInOut;
                tell(i, stride);
                board_.tensors[i].data = nullptr;
                board_.tensors[i].lies_in = static_cast<int64_t>(other);
                board_.placed.data[i] = area.data;
                return;
            }
        }
        lay_down(area, options_.placing == Placing::kOdd && !odd_begins_aligned(call_.sizes) ? element : 0);
        fill(area, tensor);
        tell(i, stride);
    }

    void lay_down(Area& area, int64_t shift) {
        const int64_t bytes = area.data_bytes();
        board_.guards[board_.num_guards++] = next_;
        area.begin = next_ + kPage;
        area.size = round_up(bytes + 2 * kBefore, kPage);
        next_ = area.begin + area.size;
        board_.guards[board_.num_guards++] = next_;
        next_ += kPage;
        CHECK(next_ < reinterpret_cast<std::byte*>(&board_) + kSharedBytes, "the call's tensors have no room");
        area.data = options_.placing == Placing::kAtEnd ? area.begin + area.size - bytes : area.begin + kBefore + shift;
    }

    void fill(Area& area, const Tensor& tensor) const {
        std::fill_n(area.begin, area.size, kKnown);
        std::vector<std::byte> poison(static_cast<size_t>(area.unit_bytes));
        const uint32_t word = kOutputPoisons[options_.output_poison];
        for (size_t i = 0; i < poison.size(); ++i) poison[i] = static_cast<std::byte>(word >> (i % 4 * 8));
        for (int64_t unit = 0; unit < tensor.num_units; ++unit) {
            const std::byte* from =
                tensor.spec.role == Role::kOut ? poison.data() : tensor.bytes.data() + unit * area.unit_bytes;
            std::copy_n(from, area.unit_bytes, area.unit(unit));
        }
        area.before.assign(area.begin, area.begin + area.size);
    }

    void tell(size_t i, int64_t stride) const {
        const Area& area = areas_[i];
        board_.placed.data[i] = area.data;
        board_.placed.stride[i] = stride;
        board_.tensors[i].data = area.data;
        board_.tensors[i].num_bytes = area.data_bytes();
    }

    // Whether outputs may have changed this byte of an area.
    [[nodiscard]] bool may_change(size_t i, const std::byte* byte) const {
        const Area& area = areas_[i];
        if (board_.tensors[i].role == Role::kIn && call_.tensors[i].spec.role == Role::kIn) return false;
        if (byte < area.data || byte >= area.data + area.data_bytes()) return false;
        return (byte - area.data) % area.stride_bytes < area.unit_bytes;
    }
    [[nodiscard]] std::string difference_of(size_t i, CallEnd& end) const {
        const Area& area = areas_[i];
        if (area.before.empty() || std::memcmp(area.begin, area.before.data(), area.before.size()) == 0) return "";
        for (int64_t at = 0; at < area.size; ++at) {
            const std::byte* byte = area.begin + at;
            if (*byte == area.before[at] || may_change(i, byte)) continue;
            const char* name = call_.tensors[i].spec.name;
            if (byte < area.data) return tell_outside(end, area.data - byte, "before", name);
            const std::byte* const data_end = area.data + area.data_bytes();
            if (byte >= data_end) return tell_outside(end, byte - data_end, "behind", name);
            const int64_t unit = (byte - area.data) / area.stride_bytes;
            if ((byte - area.data) % area.stride_bytes >= area.unit_bytes) {
                end = CallEnd::kOutside;
                return fmt::format("writes between rows {} and {} of `{}`", unit, unit + 1, name);
            }
            end = CallEnd::kInputChanged;
            return fmt::format("changes its input `{}` (unit {})", name, unit);
        }
        return "";
    }
    static std::string tell_outside(CallEnd& end, int64_t bytes, const char* where, const char* name) {
        end = CallEnd::kOutside;
        return fmt::format("writes byte {} {} `{}`", bytes, where, name);
    }

    Board& board_;
    const Arguments& call_;
    CallOptions options_;
    std::vector<Area> areas_;
    std::byte* next_ = nullptr;
};

}  // namespace

bool odd_begins_aligned(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) % 6 == 0; }

class KernelHost::Impl {
public:
    Impl(std::string library, HostLimits limits) : library_(std::move(library)), limits_(limits) {
        // Python maps it by its descriptor.
        memory_fd_ = memfd_create("tensors", MFD_CLOEXEC);
        CHECK(memory_fd_ >= 0 && ftruncate(memory_fd_, static_cast<off_t>(kSharedBytes)) == 0, "no memory: {}",
              std::strerror(errno));
        void* const shared =
            mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_fd_, 0);
        CHECK(shared != MAP_FAILED, "no addresses for {} bytes", kSharedBytes);
        board_ = static_cast<Board*>(shared);
        board_->memory_fd = memory_fd_;
    }
    ~Impl() {
        stop();
        munmap(board_, kSharedBytes);
        close(memory_fd_);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    Result<std::vector<KernelInfo>> kernels() {
        board_->question = Question::kDescribe;
        if (const auto ended = ask(limits_.seconds)) {
            return error("{} while it is loaded", ended->detail);
        }
        if (board_->answer != Answer::kYes) return error("{}", board_->detail.get());
        std::vector<KernelInfo> infos;
        for (int64_t i = 0; i < board_->num_kernels; ++i) {
            const Board::Kernel& kernel = board_->kernels[i];
            infos.push_back({kernel.name.get(), kernel.operation.get(), kernel.profile.get(), kernel.machine.get(),
                             static_cast<int32_t>(i), nullptr});
        }
        return infos;
    }

    CallResult call(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options, Question question,
                    double seconds) {
        const Layout layout(*board_, arguments, kernel.gpu == nullptr ? options : on_gpu(options));
        board_->question = question;
        board_->operation = arguments.operation;
        board_->kernel = kernel.index;
        board_->builtin = kernel.builtin;
        board_->python = kernel.python;
        board_->options = options;
        if (kernel.gpu != nullptr) return call_on_gpu(*kernel.gpu, layout, seconds);
        if (auto ended = ask(seconds)) {
            // A finding says why: an access that is misaligned ends the process as it ends a GPU's kernel.
            if (ended->end == CallEnd::kCrash && board_->num_findings > 0) {
                CallResult found{.end = CallEnd::kFinding, .detail = board_->findings[0].get(), .after = arguments};
                take_findings(found);
                return found;
            }
            if (board_->fault_signal != 0 && ended->end == CallEnd::kCrash) tell_fault(layout, arguments, *ended);
            ended->after = arguments;
            return *std::move(ended);
        }
        CallResult result{.end = board_->end, .detail = board_->detail.get(), .after = layout.after()};
        take_findings(result);
        if (result.end == CallEnd::kTaskRace) tell_clash(layout, result);
        if (result.end != CallEnd::kDone) return result;
        result.detail = layout.difference(result.end);
        return result;
    }

    [[nodiscard]] std::string said() const {
        const std::string now = child_ > 0 ? last_lines(errors_) : "";
        return now.empty() ? said_before_ : now;
    }

    Board& board() { return *board_; }
    [[nodiscard]] double seconds() const { return limits_.seconds; }

private:
    // A GPU's memory has no pages to end at.
    static CallOptions on_gpu(CallOptions options) {
        if (options.placing == Placing::kAtEnd) options.placing = Placing::kAligned;
        return options;
    }
    CallResult call_on_gpu(GpuProgram& gpu, const Layout& layout, double seconds) {
        CallResult result = gpu.call(*board_, seconds);
        result.after = layout.after();
        if (result.end == CallEnd::kDone) result.detail = layout.difference(result.end);
        if (std::string said = gpu.said(); !said.empty()) said_before_ = std::move(said);
        return result;
    }

    void start() {
        int questions[2];
        int answers[2];
        CHECK(pipe(questions) == 0 && pipe(answers) == 0, "no pipes: {}", std::strerror(errno));
        errors_ = memfd_create("kernel", 0);
        std::fflush(nullptr);
        child_ = fork();
        CHECK(child_ >= 0, "no process: {}", std::strerror(errno));
        if (child_ == 0) {
            dup2(errors_, STDERR_FILENO);
            dup2(errors_, STDOUT_FILENO);
            close(questions[1]);
            close(answers[0]);
            run_kernel_child(*board_, library_, limits_, {questions[0], answers[1]});
        }
        setpgid(child_, child_);  // parent and child both call it, since either may run first
        close(questions[0]);
        close(answers[1]);
        pipes_ = {questions[1], answers[0]};
    }

    void stop() {
        if (child_ <= 0) return;
        kill(-child_, SIGKILL);  // with whatever it has started
        int status = 0;
        waitpid(child_, &status, 0);
        close(pipes_.questions);
        close(pipes_.answers);
        close(errors_);
        errors_ = -1;
        child_ = -1;
    }

    // Empty when there is an answer on the board; else how the child ended.
    std::optional<CallResult> ask(double seconds) {
        if (child_ <= 0) start();
        board_->fault_signal = 0;
        board_->num_findings = 0;
        board_->fault_places = {};
        board_->child_memory = {};
        board_->device = {};
        board_->device_memory = {};
        board_->in_launch = false;
        board_->moment = Moment::kRun;
        char byte = 1;
        const bool sent = write(pipes_.questions, &byte, 1) == 1;
        const char* by_what = "";
        const int ready = sent ? wait_for_answer(seconds, by_what) : 1;
        if (ready == 1 && sent && read(pipes_.answers, &byte, 1) == 1) return std::nullopt;
        CallResult result;
        result.end = ready == 0 ? CallEnd::kHang : CallEnd::kCrash;
        if (ready == 0) ask_where_it_is();
        result.detail = ready == 0 ? fmt::format("no answer after {:g} s{}", seconds, by_what) : how_it_ended();
        result.where.assign(board_->fault_places.begin(), board_->fault_places.end());
        keep_words();
        stop();
        return result;
    }

    // 1: there is an answer, or the child has ended; 0: it hangs.
    int wait_for_answer(double seconds, const char*& by_what) const {
        pollfd waited{pipes_.answers, POLLIN, 0};
        const bool is_elsewhere = board_->python != nullptr && !board_->python->socket.empty();
        if (board_->question != Question::kDescribe && is_elsewhere)
            return poll(&waited, 1, static_cast<int>(seconds * 1000));  // another process computes
        constexpr int kStep = 100;                                      // milliseconds
        const bool is_threaded =
            board_->question != Question::kDescribe && board_->options.order == TaskOrder::kThreads;
        HangWatch watch(seconds, is_threaded ? std::max(board_->options.num_threads, 1) : 1);
        while (!watch.hangs()) {
            if (const int ready = poll(&waited, 1, kStep); ready != 0) return ready;
            watch.look(use_of_group(child_), kStep / 1000.0);
        }
        by_what = watch.has_used_all() ? " of a processor" : " asleep";
        return 0;
    }

    // The child notes the places of its main thread, and ends.
    void ask_where_it_is() {
        kill(child_, SIGUSR1);
        pollfd ended{pipes_.answers, POLLIN, 0};
        constexpr int kMostMilliseconds = 1000;
        poll(&ended, 1, kMostMilliseconds);
        board_->fault_signal = 0;
    }

    void keep_words() {
        if (errors_ < 0) return;
        if (std::string said = last_lines(errors_); !said.empty()) said_before_ = std::move(said);
    }

    // Of a child that has gone: the signal, and the last line that it wrote.
    std::string how_it_ended() {
        int status = 0;
        waitpid(child_, &status, 0);
        kill(-child_, SIGKILL);  // what it has started
        child_ = 0;
        std::string said = last_lines(errors_);
        keep_words();
        said.erase(0, said.rfind('\n') + 1);
        close(pipes_.questions);
        close(pipes_.answers);
        close(errors_);
        errors_ = -1;
        last_words_ = said;
        const int code = board_->fault_signal != 0 ? board_->fault_signal : WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (code == 0) return fmt::format("the process ends with code {}", WEXITSTATUS(status));
        return fmt::format("{}{}{}", strsignal(code), said.empty() ? "" : ": ", said);
    }

    // "element 3 of `x`"
    static std::string element_text(int64_t byte, const BoardTensor& tensor, const std::string& name) {
        return fmt::format("element {} of {}", byte / std::max<int64_t>(tensor.element_bytes, 1), name);
    }
    // Device memory, or static memory during a launch, that was accessed without a view; "": neither.
    [[nodiscard]] std::string bypassed(const Arguments& call) const {
        const char* verb = board_->fault_is_write ? "written" : "read";
        const auto text = [&](const BoardTensor& tensor, const std::byte* data,
                              const std::string& name) -> std::string {
            const auto begin = reinterpret_cast<uintptr_t>(data);
            const bool is_it = data != nullptr && board_->fault_address >= begin &&
                               board_->fault_address < begin + static_cast<uintptr_t>(tensor.num_bytes);
            if (!is_it) return "";
            const std::string what = element_text(static_cast<int64_t>(board_->fault_address - begin), tensor, name);
            if (!board_->in_launch)
                return fmt::format("{} is {} by run() on the host: it is device memory, and a GPU's host crashes there",
                                   what, verb);
            return fmt::format("{} is {} through a bare pointer, which the emulator cannot check: use a view", what,
                               verb);
        };
        for (size_t i = 0; i < call.tensors.size(); ++i) {
            std::string found =
                text(board_->tensors[i], board_->device[i], fmt::format("`{}`", call.tensors[i].spec.name));
            if (!found.empty()) return found;
        }
        for (const auto& [i, name] : {std::pair(0, "its workspace"), std::pair(1, "its packed weights")}) {
            std::string found = text(board_->device_memory[i], board_->device_memory[i].data, name);
            if (!found.empty()) return found;
        }
        const bool is_static = board_->in_launch && is_in_library(board_->fault_address);
        if (!is_static) return "";
        return fmt::format("{} is {} by a kernel: it is static memory of the file, which the emulator cannot check",
                           static_text(board_->fault_address), verb);
    }
    [[nodiscard]] bool is_in_library(uintptr_t address) const {
        return address >= reinterpret_cast<uintptr_t>(board_->library_begin) &&
               address < reinterpret_cast<uintptr_t>(board_->library_end);
    }
    // "`q` + 12"
    [[nodiscard]] std::string static_text(uintptr_t address) const {
        return data_symbol(library_, address - board_->library_base);
    }

    // Two tasks at one address.
    void tell_clash(const Layout& layout, CallResult& result) const {
        const TaskClash& clash = *board_->clash;
        const auto address = reinterpret_cast<uintptr_t>(clash.address);
        std::string what = layout.place_of(address);
        const BoardTensor& workspace = board_->child_memory[0];
        const auto begin = reinterpret_cast<uintptr_t>(workspace.data);
        if (is_in_library(address)) {
            what = static_text(address);
        } else if (what.empty()) {
            what = fmt::format("byte {} of its workspace", static_cast<int64_t>(address - begin));
        }
        const auto deed = [](const TaskClash::Access& access) {
            return fmt::format("{} by task {}", access.is_write ? "written" : "read", access.task);
        };
        result.detail =
            fmt::format("{} is {}, and {}: on several threads they race", what, deed(clash.first), deed(clash.second));
        result.where.assign(kFrames, 0);
        std::ranges::copy(board_->clash_places, result.where.begin());
    }

    void tell_fault(const Layout& layout, const Arguments& call, CallResult& ended) const {
        ended.detail = bypassed(call);
        if (!ended.detail.empty()) {
            ended.end = CallEnd::kBypass;
            return;
        }
        ended.detail = fault_text(layout);
    }

    [[nodiscard]] std::string fault_text(const Layout& layout) const {
        const int signal = board_->fault_signal;
        const bool of_memory = signal == SIGSEGV || signal == SIGBUS;
        std::string where = of_memory ? layout.place_of(board_->fault_address) : "";
        for (const auto& [tensor, name] : {std::pair(board_->child_memory[0], "its workspace"),
                                           std::pair(board_->child_memory[1], "its packed weights")}) {
            const auto end = reinterpret_cast<uintptr_t>(tensor.data + tensor.num_bytes);
            const bool behind = board_->fault_address >= end && board_->fault_address < end + 2 * kPage;
            if (of_memory && where.empty() && tensor.data != nullptr && behind) {
                where = fmt::format("byte {} behind {}", board_->fault_address - end, name);
            }
        }
        if (!where.empty() && board_->moment == Moment::kSupports)
            return fmt::format("supports() touches {}: it is asked before there are tensors", where);
        if (!where.empty() && board_->moment == Moment::kAfterRun)
            return fmt::format("a thread touches {} after run() has returned", where);
        const auto early = reinterpret_cast<uintptr_t>(board_->early_args);
        if (of_memory && board_->fault_address - early < static_cast<uintptr_t>(kPage))
            return fmt::format(
                "run() touches the arguments of supports(), workspace_bytes() or pack(), which are gone");
        if (!where.empty()) return fmt::format("{}: touches {}", strsignal(signal), where);
        if (of_memory) return fmt::format("{} at address {:#x}", strsignal(signal), board_->fault_address);
        return fmt::format("{}{}{}", strsignal(signal), last_words_.empty() ? "" : ": ", last_words_);
    }

    void take_findings(CallResult& result) const {
        for (int64_t i = 0; i < board_->num_findings; ++i) {
            result.findings.push_back(board_->findings[i].get());
            result.where.insert(result.where.end(), board_->frames[i].begin(), board_->frames[i].end());
        }
        for (int64_t i = 0; i < board_->num_places; ++i) {
            const Board::Place& place = board_->places[i];
            result.ordering.push_back({place.what.get(), place.file.get(), place.line, place.column});
        }
        for (int64_t i = 0; i < board_->num_notes; ++i) result.notes.push_back(board_->notes[i].get());
        result.counts = board_->counts;
        if (board_->num_findings > 0) result.finding = board_->finding_kinds[0];
    }

    std::string library_;
    HostLimits limits_;
    Board* board_ = nullptr;
    int memory_fd_ = -1;
    pid_t child_ = 0;
    BoardPipes pipes_;
    int errors_ = -1;
    std::string last_words_;
    std::string said_before_;  // by the last child that said something
};

KernelHost::KernelHost(std::string library, HostLimits limits)
    : impl_(std::make_unique<Impl>(std::move(library), limits)) {}
KernelHost::~KernelHost() = default;

Result<std::vector<KernelInfo>> KernelHost::kernels() { return impl_->kernels(); }

std::string KernelHost::said() const { return impl_->said(); }

CallResult KernelHost::call(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options) {
    return impl_->call(kernel, arguments, options, Question::kCall, impl_->seconds());
}

std::vector<double> KernelHost::time(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options,
                                     const TimingRequest& request, CallResult& result) {
    impl_->board().timing = request;
    // Leaving large caches takes its time on a busy machine, too.
    constexpr double kAround = 60;
    result =
        impl_->call(kernel, arguments, options, Question::kTime, impl_->seconds() + 4 * request.max_seconds + kAround);
    if (result.end != CallEnd::kDone) return {};
    const Board& board = impl_->board();
    return {board.times_s.begin(), board.times_s.begin() + board.num_times};
}

Result<MachineLimits> KernelHost::gpu_limits(const KernelInfo& kernel) {
    CHECK(kernel.gpu != nullptr, "{} has no GPU", kernel.name);
    return kernel.gpu->limits(impl_->board(), impl_->seconds());
}

}  // namespace verbatim::sandbox
