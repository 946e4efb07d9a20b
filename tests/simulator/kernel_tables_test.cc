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
        for (const double y : {0, 1, 2}) points[{x, y, 0}] = 100;
    }
    points.erase({1, 1, 0});
    points[{0, 1, 0}] = points[{2, 1, 0}] = 10;  // the line along x
    points[{1, 0, 0}] = points[{1, 2, 0}] = 40;  // the line along y
    EXPECT_DOUBLE_EQ(GridTable(points).estimate({1, 1, 0}).value, 25);
    EXPECT_DOUBLE_EQ(GridTable(points, {1, 2, 1}).estimate({1, 1, 0}).value, 30);
}

TEST(GridTable, BeyondItsRimTheNearestPointIsNamed) {
    const GridTable table(plane_points());
    const GridEstimate beyond = table.estimate({100, 10, 0});
    EXPECT_EQ(beyond.kind, Kind::kNearest);
    EXPECT_EQ(beyond.at, (GridPoint{8, 10, 0}));
    EXPECT_DOUBLE_EQ(beyond.value, plane(8, 10));
    auto points = plane_points();
    points.erase({8, 100, 0});  // a corner of the grid: no line passes it
    const GridEstimate corner = GridTable(points).estimate({8, 100, 0});
    EXPECT_EQ(corner.kind, Kind::kNearest);
    EXPECT_EQ(corner.at, (GridPoint{4, 100, 0}));
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
    // "1,32,64,0.00260267" of h100_sxm_gemm.csv.gz.
    const KernelPrice price = h100_tables().matmul(1, 32, 64);
    EXPECT_EQ(price.source, PriceSource::kMeasured);
    EXPECT_DOUBLE_EQ(price.ns, 2602.67);
    EXPECT_EQ(h100_tables().matmul(100, 3000, 3000).source, PriceSource::kInterpolated);
    EXPECT_EQ(h100_tables().matmul(100'000, 3000, 3000).source, PriceSource::kExtrapolated);
}

TEST(TableTimes, PricesAreNearWhatTheRooflineSays) {
    const RooflineTimes roofline(h100());
    const auto near = [](const KernelPrice& table, const KernelPrice& line, double factor) {
        EXPECT_GT(table.ns, line.ns / factor);
        EXPECT_LT(table.ns, line.ns * factor);
    };
    for (const int64_t m : {1, 30, 300, 5000, 60'000}) {
        SCOPED_TRACE(m);
        near(h100_tables().matmul(m, 4000, 2048), roofline.matmul(m, 4000, 2048), 2.5);
        near(h100_tables().context_attention(kShape, 10 * m, 0), roofline.context_attention(kShape, 10 * m, 0), 6);
        near(h100_tables().decode_attention(kShape, 20, 10 * m), roofline.decode_attention(kShape, 20, 10 * m), 6);
    }
    const MambaShape mamba{.n_heads = 64, .head_dim = 64, .d_state = 128};
    near(h100_tables().conv(mamba.conv(), 1, 2000), roofline.conv(mamba.conv(), 1, 2000), 6);
    near(h100_tables().conv(mamba.conv(), 50, 50), roofline.conv(mamba.conv(), 50, 50), 6);
}

TEST(TableTimes, AChunkCostsItsShareOfThePairs) {
    const double whole = h100_tables().context_attention(kShape, 8192, 0).ns;
    const double first = h100_tables().context_attention(kShape, 4096, 0).ns;
    const KernelPrice second = h100_tables().context_attention(kShape, 4096, 4096);
    EXPECT_EQ(second.source, PriceSource::kExtrapolated);
    EXPECT_NEAR(second.ns, whole * (4096.0 * 4096 + 4096.0 * 4097 / 2) / (8192.0 * 8193 / 2), 1);
    EXPECT_GT(second.ns, first);
}

TEST(TableTimes, UnmeasuredHeadCountsAreScaled) {
    AttentionShape odd = kShape;
    odd.n_heads = 33;
    const KernelPrice price = h100_tables().decode_attention(odd, 16, 4096);
    EXPECT_EQ(price.source, PriceSource::kExtrapolated);
    EXPECT_NEAR(price.ns, h100_tables().decode_attention(kShape, 16, 4096).ns, 0.1 * price.ns);
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
