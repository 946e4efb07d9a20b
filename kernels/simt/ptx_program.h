// kernels/simt/ptx_program.h: owns inline PTX as CUDA source writes it in `asm`: the text becomes a program of the
// instructions that are taken (kernels/simt/ptx_program.cc lists them), which a thread of the emulator runs.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/simt/source_threads.h"

namespace verbatim::simt {

struct PtxOperand {
    enum class Kind : uint8_t { kRegister, kImmediate, kVector, kAddress, kSpecial, kSink };
    Kind kind = Kind::kSink;
    int32_t index = -1;     // kRegister; kAddress: the register, or -1
    int64_t immediate = 0;  // kImmediate, kAddress
    std::string name;       // kSpecial: laneid, tid.x, ...
    bool is_predicate = false;
    std::vector<PtxOperand> elements;
    std::vector<PtxOperand> coordinates;     // kAddress: of a box in a tensor
    std::vector<PtxOperand> with_predicate;  // "d|p": p
};

class PtxThread;
struct PtxInstruction;
using PtxFunction = void (*)(PtxThread& thread, const PtxInstruction& instruction);
struct PtxInstruction {
    size_t at = 0;  // in the text
    int32_t guard = -1;
    bool guard_wants = true;
    std::vector<std::string> words;  // the whole opcode, and what its pattern captures
    std::vector<PtxOperand> operands;
    PtxFunction run = nullptr;  // null: a branch
    std::string label;
    size_t target = 0;
};

// The first registers are asm's operands.
inline constexpr size_t kPtxRegisters = 256;
struct PtxProgram {
    std::vector<PtxInstruction> instructions;
    size_t num_registers = 0;
};
// Why a text is not taken, and where in it.
struct PtxProblem {
    size_t at = 0;
    std::string what;
};
// Whether the text is taken, for an asm of so many operands; else the problem.
[[nodiscard]] bool read_ptx(std::string_view text, size_t num_operands, PtxProgram& program, PtxProblem& problem);

// The opcode's function and what the opcode's pattern captures; null if it is not taken.
struct PtxOpcode {
    PtxFunction run = nullptr;
    size_t least_operands = 0;
    std::vector<std::string> words;
    // Per operand, how many elements its vector has; 0 and behind the end: no vector is taken.
    std::vector<size_t> elements;
    size_t num_coordinates = 0;    // of the only address that has some
    bool takes_parts = false;      // also one vector of 2 or 4
    bool takes_predicate = false;  // "d|p"
    size_t or_scalar = 99;         // this operand may also be no vector
};
[[nodiscard]] PtxOpcode find_ptx(const std::string& opcode);

// A thread that runs a program.
class PtxThread {
public:
    PtxThread(cuda_source::Place asm_place, const cuda_source::PtxOperands& given);
    void run(const PtxProgram& program);
    [[nodiscard]] uint64_t value(const PtxOperand& operand) const;
    void set(const PtxOperand& operand, uint64_t value);

    cuda_source::Place where;
    uint64_t registers[kPtxRegisters];
    std::bitset<kPtxRegisters> written;  // registers that have a value
    const cuda_source::PtxOperands& operands;

private:
    [[nodiscard]] uint64_t register_value(int32_t index) const;
};

}  // namespace verbatim::simt
