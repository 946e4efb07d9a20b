#include "simulator/kernel_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/grid_table.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using Kind = GridEstimate::Kind;
using ::testing::HasSubstr;

// 3 + 2x + 5y + xy: linear along each axis.
double plane(double x, double y) { return 3 + 2 * x + 5 * y + x * y; }

std::map<GridPoint, double> plane_points() {
    std::map<GridPoint, double> points;
    for (const double x : {1, 2, 4, 8}) {
        for (const double y : {1, 10, 100}) points[{x, y, 0}] = plane(x, y);
    }
    return points;
}

TEST(GridTable, IsExactAtItsPointsAndLinearBetweenThem) {
    const GridTable table(plane_points());
    EXPECT_EQ(table.estimate({4, 10, 0}).kind, Kind::kMeasured);
    EXPECT_DOUBLE_EQ(table.estimate({4, 10, 0}).value, plane(4, 10));
    for (const auto& [x, y] : {std::pair{3.0, 10.0}, {4.0, 55.0}, {5.5, 70.0}, {1.5, 1.5}}) {
        const GridEstimate between = table.estimate({x, y, 0});
        EXPECT_EQ(between.kind, Kind::kBetween);
        EXPECT_NEAR(between.value, plane(x, y), 1e-9);
    }
}

TEST(GridTable, AHoleIsFilledFromItsNeighbours) {
    auto points = plane_points();
    points.erase({4, 10, 0});
    const GridTable table(points);
    EXPECT_EQ(table.estimate({4, 10, 0}).kind, Kind::kBetween);
    EXPECT_NEAR(table.estimate({4, 10, 0}).value, plane(4, 10), 1e-9);
    EXPECT_NEAR(table.estimate({3, 10, 0}).value, plane(3, 10), 1e-9) << "a corner that was filled";
    EXPECT_NEAR(GridTable(plane_points()).leave_out({4, 10, 0}).value, plane(4, 10), 1e-9);
}

TEST(GridTable, AHolesValueIsTheWeightedMeanOfTheLines) {
    std::map<GridPoint, double> points;
    for (const double x : {0, 1, 2}) {
        for (const double y : {0, 1, 2}) points[{x, y, 0}] = x == 2 && y == 2 ? 100 : 1;
    }
    points.erase({1, 1, 0});
    points[{0, 1, 0}] = 1, points[{2, 1, 0}] = 39;  // the line along x: 20
    points[{1, 0, 0}] = 1, points[{1, 2, 0}] = 79;  // the line along y: 40
    EXPECT_DOUBLE_EQ(GridTable(points).estimate({1, 1, 0}).value, 30);
    EXPECT_DOUBLE_EQ(GridTable(points, {2, 1, 1}).estimate({1, 1, 0}).value, (2 * 20 + 40) / 3.0);
}

TEST(GridTable, BeyondItsBoxItGrowsInProportionAndBelowItStays) {
    const GridTable table(plane_points());
    EXPECT_EQ(table.estimate({80, 10, 0}).kind, Kind::kBeyond);
    EXPECT_DOUBLE_EQ(table.estimate({80, 10, 0}).value, 10 * plane(8, 10));
    EXPECT_DOUBLE_EQ(table.estimate({16, 300, 0}).value, 2 * 3 * plane(8, 100));
    EXPECT_DOUBLE_EQ(table.estimate({0.5, 10, 0}).value, plane(1, 10)) << "small kernels take their launch's time";
    EXPECT_DOUBLE_EQ(table.estimate({80, 1, 0}).value, 10 * plane(8, 1));
}

// No line passes a corner.
TEST(GridTable, ACornerThatIsAHoleIsScaledFromTheCellsBelowItOrTakenFromThoseAbove) {
    auto points = plane_points();
    points.erase({8, 100, 0});
    points.erase({1, 1, 0});
    const Growth growth = [](const GridPoint& p) { return p[0] * p[1] + p[0]; };
    const GridTable table(points, {1, 1, 1}, growth);
    const double along_x = plane(4, 100) * growth({8, 100, 0}) / growth({4, 100, 0});
    const double along_y = plane(8, 10) * growth({8, 100, 0}) / growth({8, 10, 0});
    EXPECT_EQ(table.estimate({8, 100, 0}).kind, Kind::kBeyond);
    ASSERT_GT(std::min(along_x, along_y), plane(4, 100));
    EXPECT_DOUBLE_EQ(table.estimate({8, 100, 0}).value, (along_x + along_y) / 2);
    EXPECT_DOUBLE_EQ(table.estimate({1, 1, 0}).value, plane(2, 1));
    EXPECT_EQ(table.leave_out({8, 10, 0}).kind, Kind::kBeyond);
    EXPECT_DOUBLE_EQ(table.leave_out({8, 10, 0}).value, plane(4, 10) * growth({8, 10, 0}) / growth({4, 10, 0}));
}

TEST(GridTable, MeasurementsThatDescendMeetInTheMiddle) {
    std::map<GridPoint, double> points;
    for (const auto& [x, value] : {std::pair{1.0, 10.0}, {2.0, 30.0}, {3.0, 20.0}, {4.0, 40.0}}) points[{x}] = value;
    const GridTable table(points);
    EXPECT_DOUBLE_EQ(table.estimate({1}).value, 10);
    EXPECT_EQ(table.estimate({1}).kind, Kind::kMeasured);
    EXPECT_DOUBLE_EQ(table.estimate({2}).value, 25);
    EXPECT_DOUBLE_EQ(table.estimate({3}).value, 25);
    EXPECT_EQ(table.estimate({3}).kind, Kind::kBetween);
    EXPECT_DOUBLE_EQ(table.estimate({4}).value, 40);
}

// --- the tables that are shipped

Device h100() {
    Device device;
    device.memory_bytes_per_s = 3.35e12;
    device.memory_efficiency = 0.8;
    device.bf16_flops = 989e12;
    device.flops_efficiency = 0.79;
    device.kernel_ns = 3000;
    return device;
}

const TableTimes& h100_tables() {
    static const TableTimes tables = [] {
        auto read = TableTimes::read(VERBATIM_SOURCE_DIR "/simulator/silicon/h100_sxm", h100());
        EXPECT_TRUE(read.has_value()) << read.error().message;
        return *std::move(read);
    }();
    return tables;
}

constexpr AttentionShape kShape{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128};

TEST(TableTimes, AMeasuredKernelHasItsMeasuredPrice) {
    // "16384,4096,4096,0.7397" of h100_sxm_gemm.csv.gz.
    const KernelPrice price = h100_tables().matmul(16'384, 4096, 4096);
    EXPECT_EQ(price.source, PriceSource::kMeasured);
    EXPECT_DOUBLE_EQ(price.ns, 739'700);
    EXPECT_EQ(h100_tables().matmul(100, 3000, 3000).source, PriceSource::kInterpolated);
    EXPECT_EQ(h100_tables().matmul(100'000, 3000, 3000).source, PriceSource::kExtrapolated);
}

DecodeBatch decodes(int64_t num_sequences, int64_t context) {
    return {num_sequences, real(num_sequences * context), real(context)};
}

double chunk_ns(const KernelTimes& times, int64_t num_new, int64_t past) {
    const Chunk chunk{num_new, past};
    return times.context_attention(kShape, {&chunk, 1}).ns;
}

TEST(TableTimes, PricesAreNearWhatTheRooflineSays) {
    const RooflineTimes roofline(h100());
    const auto near = [](double table, double line, double factor) {
        EXPECT_GT(table, line / factor);
        EXPECT_LT(table, line * factor);
    };
    for (const int64_t m : {1, 30, 300, 5000, 60'000}) {
        SCOPED_TRACE(m);
        near(h100_tables().matmul(m, 4000, 2048).ns, roofline.matmul(m, 4000, 2048).ns, 2.5);
        near(chunk_ns(h100_tables(), 10 * m, 0), chunk_ns(roofline, 10 * m, 0), 6);
        near(h100_tables().decode_attention(kShape, decodes(20, 10 * m)).ns,
             roofline.decode_attention(kShape, decodes(20, 10 * m)).ns, 6);
    }
    const MambaShape mamba{.n_heads = 64, .head_dim = 64, .d_state = 128};
    near(h100_tables().conv(mamba.conv(), 1, 2000).ns, roofline.conv(mamba.conv(), 1, 2000).ns, 6);
    near(h100_tables().conv(mamba.conv(), 50, 50).ns, roofline.conv(mamba.conv(), 50, 50).ns, 6);
}

// "1,8192,32,8,128,0,0.912219" and "1,16384,32,8,128,0,3.31038" of h100_sxm_context_attention.csv.gz: 24.66 fs a pair.
TEST(TableTimes, AChunkCostsItsOwnPairsAndThoseWithThePast) {
    EXPECT_DOUBLE_EQ(chunk_ns(h100_tables(), 8192, 0), 912'219);
    const double pair_ns = 3'310'380 / (16384.0 * 16385 / 2);
    EXPECT_NEAR(chunk_ns(h100_tables(), 8192, 8192), 912'219 + pair_ns * 8192 * 8192, 1);
    const Chunk past{8192, 8192};
    EXPECT_EQ(h100_tables().context_attention(kShape, {&past, 1}).source, PriceSource::kExtrapolated);
    // In two halves a prompt takes about as long as whole.
    const double halves = chunk_ns(h100_tables(), 8192, 0) + chunk_ns(h100_tables(), 8192, 8192);
    EXPECT_NEAR(halves / chunk_ns(h100_tables(), 16384, 0), 1, 0.06);
}

// Two tokens after 100 000 took 4.9 us where one takes 177: their share of the pairs of a whole prompt.
TEST(TableTimes, AShortChunkReadsItsWholePast) {
    for (const int64_t past : {0, 1, 100, 16'000, 100'000}) {
        const double one = h100_tables().decode_attention(kShape, decodes(1, past + 1)).ns;
        double before = one;
        for (const int64_t num_new : {1, 2, 3, 8, 64, 512}) {
            SCOPED_TRACE(fmt::format("{} after {}", num_new, past));
            EXPECT_GE(chunk_ns(h100_tables(), num_new, past), before);
            before = chunk_ns(h100_tables(), num_new, past);
        }
    }
    EXPECT_GT(chunk_ns(h100_tables(), 2, 100'000), 170'000);
    EXPECT_LT(chunk_ns(h100_tables(), 2, 100'000), 190'000);
}

TEST(TableTimes, WindowsOfSeveralSequencesAreOneKernel) {
    const double decodes_ns = h100_tables().decode_attention(kShape, decodes(8, 16'000)).ns;
    DecodeBatch windows = decodes(8, 16'000);
    windows.window_pairs = 8 * 15'999;
    const double windows_ns = h100_tables().decode_attention(kShape, windows).ns;
    EXPECT_GT(windows_ns, decodes_ns);
    EXPECT_LT(windows_ns, 1.05 * decodes_ns) << "they read the same positions";
    EXPECT_LT(windows_ns, 8 * h100_tables().decode_attention(kShape, decodes(1, 16'000)).ns);
}

TEST(TableTimes, UnmeasuredHeadCountsAreScaled) {
    AttentionShape odd = kShape;
    odd.n_heads = 33;
    const KernelPrice price = h100_tables().decode_attention(odd, decodes(16, 4096));
    EXPECT_EQ(price.source, PriceSource::kExtrapolated);
    EXPECT_NEAR(price.ns, h100_tables().decode_attention(kShape, decodes(16, 4096)).ns, 0.1 * price.ns);
    odd = {.n_heads = 32, .n_kv_heads = 8, .head_dim = 100};
    const KernelPrice narrow = h100_tables().decode_attention(odd, decodes(64, 16'384));
    EXPECT_NEAR(narrow.ns, h100_tables().decode_attention(kShape, decodes(64, 16'384)).ns * 100 / 128, 1);
    EXPECT_GE(h100_tables().decode_attention(odd, decodes(1, 1)).ns, 3000) << "a launch's time";
}

// Points in a line: as many values on each axis as there are points, and a grid of their cube.
TEST(TableTimes, ATableWhoseGridWouldBeTooLargeIsAnError) {
    const ScratchFolder scratch;
    std::string csv = "m,n,k,latency_ms\n";
    for (int i = 1; i <= 257; ++i) csv += fmt::format("{0},{0},{0},0.5\n", i);
    scratch.write("x_gemm.csv.gz", csv);
    const auto read = TableTimes::read(scratch.path("x"), h100());
    ASSERT_FALSE(read.has_value());
    EXPECT_THAT(read.error().message, HasSubstr("x_gemm.csv.gz: 257 points span a grid of 257 x 257 x 257 cells"));
    EXPECT_THAT(read.error().message, HasSubstr("wanted at most 4194304"));
}

TEST(TableTimes, LeavingRowsOutCostsWhatTheDocumentSays) {
    for (const LeaveOutError& error : h100_tables().leave_out_errors()) {
        SCOPED_TRACE(error.table);
        EXPECT_GT(error.num_rows, 50);
        EXPECT_GT(error.p95, error.p50);
        EXPECT_LT(error.mean, error.table == "conv, decode" ? 0.11 : 0.06);
        EXPECT_GT(error.mean, 0.01) << "nothing is that exact: was anything left out?";
    }
}

TEST(TableTimes, WrongFilesAreErrorsWithTheirLine) {
    const tests::ScratchFolder scratch;
    const std::string folder = scratch.path().string();
    const auto write = [&](const std::string& text) {
        scratch.write("x_gemm.csv.gz", text);  // plain text is read, too
        const auto read = TableTimes::read(folder + "/x", h100());
        return read ? std::string() : read.error().message;
    };
    EXPECT_THAT(TableTimes::read(folder + "/none", h100()).error().message, HasSubstr("none_gemm.csv.gz"));
    EXPECT_THAT(write(""), HasSubstr("wanted a header line"));
    EXPECT_THAT(write("m,n,latency_ms\n1,2,3\n"), HasSubstr("got no column k"));
    EXPECT_THAT(write("m,n,k,latency_ms\n1,2,3,4\n1,2,x,4\n"), HasSubstr(":3: column k: got 'x', wanted a number"));
    EXPECT_THAT(write("m,n,k,latency_ms\n1,2,3\n"), HasSubstr(":2: got 3 fields, wanted 4"));
    EXPECT_THAT(write("m,n,k,latency_ms\n1,2,3,0\n"), HasSubstr("takes no time"));
    EXPECT_THAT(write("m,n,k,latency_ms\n"), HasSubstr("got no rows"));
}

}  // namespace
}  // namespace verbatim::tests
