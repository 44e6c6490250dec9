/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

func volume(mode corev1.PersistentVolumeMode) driver.Volume {
	return driver.Volume{
		Handle: "vol-1", PersistentVolume: "pv-1", Mode: mode, AccessMode: corev1.ReadWriteOnce, FSType: "xfs",
		Attributes: map[string]string{"attribute": "a"}, PublishContext: map[string]string{"context": "c"},
	}
}

func mounted(mode csi.VolumeCapability_AccessMode_Mode, group string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: flags,
			VolumeMountGroup: group}},
	}
}

func block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

// callEverything calls each method once for a volume with everything set.
func callEverything(t *testing.T, d *Driver, v driver.Volume) {
	t.Helper()
	ctx, secrets := t.Context(), map[string]string{"key": "secret"}
	_, expandErr := d.Expand(ctx, driver.ExpandRequest{
		Volume: v, StagingPath: "/stage", Path: "/published", Capacity: resource.MustParse("2Gi"), Secrets: secrets,
	})
	for _, err := range []error{
		d.Stage(ctx, driver.StageRequest{
			Volume: v, StagingPath: "/stage", MountOptions: []string{"noatime"}, FSGroup: ptr.To[int64](2000), Secrets: secrets,
		}),
		d.Publish(ctx, driver.PublishRequest{
			Volume: v, StagingPath: "/stage", TargetPath: "/published", ReadOnly: true, MountOptions: []string{"noexec"},
			FSGroup: ptr.To[int64](2000), Secrets: secrets,
		}),
		d.Unpublish(ctx, driver.UnpublishRequest{Handle: "vol-1", TargetPath: "/published"}),
		d.Unstage(ctx, driver.UnstageRequest{Handle: "vol-1", StagingPath: "/stage"}),
		expandErr,
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

func expectRequests(t *testing.T, s *scripted, want ...proto.Message) {
	t.Helper()
	got := s.received()
	if len(got) != len(want) {
		t.Fatalf("the driver received %d requests, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("request %d to driver %s:\n%v\nwant\n%v", i, driverName, got[i], want[i])
		}
	}
}

func TestADriverWithAllCapabilitiesGetsAllCalls(t *testing.T) {
	s := &scripted{capabilities: allCapabilities()}
	callEverything(t, connect(t, s), volume(corev1.PersistentVolumeFilesystem))
	mode := csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	attributes, publishContext := map[string]string{"attribute": "a"}, map[string]string{"context": "c"}
	secrets := map[string]string{"key": "secret"}
	expectRequests(t, s,
		&csi.NodeExpandVolumeRequest{
			VolumeId: "vol-1", VolumePath: "/published", StagingTargetPath: "/stage", Secrets: secrets,
			CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30}, VolumeCapability: mounted(mode, ""),
		},
		&csi.NodeStageVolumeRequest{
			VolumeId: "vol-1", PublishContext: publishContext, StagingTargetPath: "/stage", Secrets: secrets,
			VolumeContext:    attributes,
			VolumeCapability: mounted(mode, "2000", "noatime"),
		},
		&csi.NodePublishVolumeRequest{
			VolumeId: "vol-1", PublishContext: publishContext, StagingTargetPath: "/stage", TargetPath: "/published",
			Readonly: true,
			Secrets:  secrets, VolumeContext: attributes, VolumeCapability: mounted(mode, "2000", "noexec"),
		},
		&csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/published"},
		&csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/stage"},
	)
}

func TestADriverWithFewCapabilitiesGetsFewCalls(t *testing.T) {
	s := &scripted{}
	d := connect(t, s)
	callEverything(t, d, volume(corev1.PersistentVolumeFilesystem))
	expectRequests(t, s,
		&csi.NodePublishVolumeRequest{
			VolumeId: "vol-1", PublishContext: map[string]string{"context": "c"}, TargetPath: "/published", Readonly: true,
			Secrets: map[string]string{"key": "secret"}, VolumeContext: map[string]string{"attribute": "a"},
			VolumeCapability: mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "", "noexec"),
		},
		&csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/published"},
	)
	got, err := d.Expand(t.Context(), driver.ExpandRequest{Capacity: resource.MustParse("3Gi")})
	if err != nil || got.Value() != 3<<30 {
		t.Errorf("capacity after Expand by a driver that cannot: %v, error %v; want 3Gi", got, err)
	}
	_, stats := d.Stats(t.Context(), driver.StatsRequest{})
	_, health := d.VolumeHealth(t.Context(), driver.StatsRequest{})
	_, storage := d.StorageHealth(t.Context())
	for what, err := range map[string]error{"Stats": stats, "VolumeHealth": health, "StorageHealth": storage} {
		if !driver.IsInvalid(err) || driver.CodeOf(err) != "Unimplemented" {
			t.Errorf("%s of a driver without it: error %v, want Invalid with code Unimplemented", what, err)
		}
	}
}

func TestABlockVolumeHasNoMountOptions(t *testing.T) {
	s := &scripted{capabilities: allCapabilities()}
	callEverything(t, connect(t, s), volume(corev1.PersistentVolumeBlock))
	want := block(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
	for _, request := range s.received() {
		if r, ok := request.(interface{ GetVolumeCapability() *csi.VolumeCapability }); ok &&
			!proto.Equal(r.GetVolumeCapability(), want) {
			t.Errorf("capability in %T for a block volume: %v, want %v", request, r.GetVolumeCapability(), want)
		}
	}
}

func TestAccessModesAreMappedAsTheKubeletDoes(t *testing.T) {
	plain := &description{}
	fine := &description{capabilities: map[csi.NodeServiceCapability_RPC_Type]bool{
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true}}
	for _, c := range []struct {
		mode           corev1.PersistentVolumeAccessMode
		plain, capable csi.VolumeCapability_AccessMode_Mode
	}{
		{corev1.ReadWriteOnce, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{corev1.ReadWriteOncePod, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{corev1.ReadOnlyMany, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{corev1.ReadWriteMany, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
			csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		{"Other", csi.VolumeCapability_AccessMode_UNKNOWN, csi.VolumeCapability_AccessMode_UNKNOWN},
	} {
		if a, b := plain.accessMode(c.mode), fine.accessMode(c.mode); a != c.plain || b != c.capable {
			t.Errorf("access mode of %s: %s without and %s with SINGLE_NODE_MULTI_WRITER, want %s and %s", c.mode, a, b, c.plain,
				c.capable)
		}
	}
}

func TestExpandReturnsTheDriversCapacity(t *testing.T) {
	s := &scripted{capabilities: allCapabilities(), expanded: 5 << 30}
	got, err := connect(t, s).Expand(t.Context(), driver.ExpandRequest{Capacity: resource.MustParse("4Gi")})
	if err != nil || got.Value() != 5<<30 {
		t.Errorf("capacity after Expand to 4Gi: %v, error %v; want the driver's 5Gi", got, err)
	}
}

func TestStatsReturnUsage(t *testing.T) {
	s := &scripted{
		capabilities: allCapabilities(),
		stats: &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: 100, Used: 30, Available: 70},
			{Unit: csi.VolumeUsage_INODES, Total: 10, Used: 3, Available: 7},
		}},
	}
	got, err := connect(t, s).Stats(t.Context(),
		driver.StatsRequest{Handle: "vol-1", StagingPath: "/stage", Path: "/published"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Capacity.Value() != 100 || got.Used.Value() != 30 || got.Available.Value() != 70 || *got.Inodes != 10 ||
		*got.InodesUsed != 3 || got.HasHealth {
		t.Errorf("stats of vol-1: %+v, want 100, 30 and 70 bytes, 10 and 3 inodes, and no health", got)
	}
	expectRequests(t, s,
		&csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: "/published", StagingTargetPath: "/stage"})
}

func TestTheHealthOfAVolumeHasEveryProblemThatIsKnown(t *testing.T) {
	s := &scripted{
		capabilities: append(allCapabilities(), csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH),
		health: &csi.NodeGetVolumeHealthResponse{
			VolumeHealth: &csi.VolumeHealth{HealthStatuses: []*csi.VolumeHealth_VolumeHealthEntry{
				{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: "PathLost", Message: "one of two"},
				{Status: 99, Reason: "OfANewerSpecification"},
				{Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: "Gone"},
				{Status: csi.VolumeHealthErrorType_DATA_LOSS, Reason: "Bitrot"},
			}}},
	}
	d := connect(t, s)
	got, err := d.VolumeHealth(t.Context(),
		driver.StatsRequest{Handle: "vol-1", StagingPath: "/stage", Path: "/published"})
	want := []volumesv1alpha1.HealthProblem{
		{Status: volumesv1alpha1.HealthDegraded, Reason: "PathLost", Message: "one of two"},
		{Status: volumesv1alpha1.HealthInaccessible, Reason: "Gone"},
		{Status: volumesv1alpha1.HealthDataLoss, Reason: "Bitrot"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("health of vol-1: %+v, error %v; want %+v", got, err, want)
	}
	expectRequests(t, s,
		&csi.NodeGetVolumeHealthRequest{VolumeId: "vol-1", VolumePublishPath: "/published", StagingTargetPath: "/stage"})
	s.health = &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: "vol-1"}}
	if got, err := d.VolumeHealth(t.Context(), driver.StatsRequest{Handle: "vol-1"}); err != nil || len(got) > 0 {
		t.Errorf("health of vol-1 that has no problem: %+v, error %v; want none", got, err)
	}
	s.script(func(context.Context, proto.Message) error { return status.Error(codes.NotFound, "no vol-1") })
	if got, err := d.VolumeHealth(t.Context(), driver.StatsRequest{Handle: "vol-1"}); !driver.IsNotFound(err) {
		t.Errorf("health of vol-1 that the driver does not find: %+v, error %v; want not found", got, err)
	}
}

func TestTheHealthOfTheStorageNamesTheVolumesThatItIsAbout(t *testing.T) {
	s := &scripted{
		capabilities: append(allCapabilities(), csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH),
		storage: &csi.NodeGetStorageHealthResponse{
			BackendHealth: []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{
				{Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "NoPath", Message: "all paths down",
					VolumeCapability: block(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)},
				{Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "Slow",
					VolumeCapability: mounted(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, "")},
				{Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "Rebuilding"},
				{Status: 99, Reason: "OfANewerSpecification"},
			}},
	}
	d := connect(t, s)
	got, err := d.StorageHealth(t.Context())
	want := []volumesv1alpha1.HealthProblem{
		{Status: volumesv1alpha1.HealthStorageUnreachable, Reason: "NoPath", Message: "all paths down",
			AccessMode: corev1.ReadWriteOncePod, VolumeMode: corev1.PersistentVolumeBlock},
		{Status: volumesv1alpha1.HealthStorageDegraded, Reason: "Slow", AccessMode: corev1.ReadWriteMany,
			VolumeMode: corev1.PersistentVolumeFilesystem},
		{Status: volumesv1alpha1.HealthStorageDegraded, Reason: "Rebuilding"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("health of the storage of %s: %+v, error %v; want %+v", driverName, got, err, want)
	}
	expectRequests(t, s, &csi.NodeGetStorageHealthRequest{})
	s.script(func(context.Context, proto.Message) error { return status.Error(codes.Internal, "broken") })
	if got, err := d.StorageHealth(t.Context()); err == nil {
		t.Errorf("health of the storage of a driver that fails: %+v, error %v; want an error", got, err)
	}
	for mode, want := range map[csi.VolumeCapability_AccessMode_Mode]corev1.PersistentVolumeAccessMode{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:       corev1.ReadWriteOnce,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER: corev1.ReadWriteOnce,
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:   corev1.ReadOnlyMany,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER: "",
	} {
		if got := kubernetesAccessMode(block(mode)); got != want {
			t.Errorf("access mode for %s: %q, want %q", mode, got, want)
		}
	}
}

// condition is field 2 of the answer, as drivers sent it before version 1.13.
func condition(abnormal bool, message string) []byte {
	inner := protowire.AppendTag(nil, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, protowire.EncodeBool(abnormal))
	inner = protowire.AppendTag(inner, 2, protowire.BytesType)
	inner = protowire.AppendString(inner, message)
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner)
}

func TestTheVolumeConditionOfOlderDriversIsRead(t *testing.T) {
	stats := &csi.NodeGetVolumeStatsResponse{}
	stats.ProtoReflect().SetUnknown(condition(true, "disk on fire"))
	s := &scripted{capabilities: append(allCapabilities(), volumeCondition), stats: stats}
	got, err := connect(t, s).Stats(t.Context(), driver.StatsRequest{})
	want := volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthAbnormal, Message: "disk on fire"}
	if err != nil || !got.HasHealth || !slices.Equal(got.Problems, []volumesv1alpha1.HealthProblem{want}) {
		t.Errorf("stats with a volume condition: %+v, error %v; want %+v", got, err, want)
	}
	for _, broken := range [][]byte{nil, {0x12}, {0x12, 0xff}, {0x12, 2, 0x08}, {0x12, 1, 0x08}, {0xff, 0xff},
		condition(false, "fine")} {
		if got := oldCondition(broken); len(got) > 0 {
			t.Errorf("volume condition %x counts as %+v, want no problem", broken, got)
		}
	}
}

func TestADriverDescribesItself(t *testing.T) {
	s := &scripted{capabilities: append(allCapabilities(), volumeCondition), nodeID: "node-7", maxVolumes: 25}
	line, err := connect(t, s).Describe(t.Context())
	if err != nil || line.Name != driverName || line.NodeID != "node-7" || line.MaxVolumes == nil ||
		*line.MaxVolumes != 25 {
		t.Errorf("description: %+v, error %v; want %s on node-7 with 25 volumes", line, err, driverName)
	}
	want := []string{"EXPAND_VOLUME", "GET_VOLUME_STATS", "SINGLE_NODE_MULTI_WRITER", "STAGE_UNSTAGE_VOLUME",
		"VOLUME_CONDITION", "VOLUME_MOUNT_GROUP"}
	if !slices.Equal(line.Capabilities, want) {
		t.Errorf("capabilities of %s: %v, want %v", driverName, line.Capabilities, want)
	}
}

func TestCallsAreCountedByMethodAndCode(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{capabilities: allCapabilities()}
	socket := shortDir(t) + "/csi.sock"
	s.serve(t, socket)
	d, err := Connect(t.Context(), driverName, socket, metrics)
	if err != nil {
		t.Fatal(err)
	}
	s.script(func(context.Context, proto.Message) error { return status.Error(codes.Aborted, "") })
	for range 2 {
		if err := d.Stage(t.Context(), driver.StageRequest{}); err == nil {
			t.Fatal("Stage with a scripted Aborted: no error, want one")
		}
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "csi_operations_seconds" {
		t.Fatalf("metric families: %v, error %v; want csi_operations_seconds alone", families, err)
	}
	counts, names := map[string]uint64{}, map[string]bool{}
	for _, metric := range families[0].GetMetric() {
		key := ""
		for _, label := range metric.GetLabel() {
			key += label.GetValue() + " "
			names[label.GetName()] = true
		}
		counts[key] = metric.GetHistogram().GetSampleCount()
	}
	if counts[driverName+" Aborted /csi.v1.Node/NodeStageVolume false "] != 2 ||
		counts[driverName+" OK /csi.v1.Node/NodeGetCapabilities false "] != 1 {
		t.Errorf("calls counted in csi_operations_seconds: %v, want 2 NodeStageVolume Aborted and 1 NodeGetCapabilities OK",
			counts)
	}
	if !maps.Equal(names,
		map[string]bool{"driver_name": true, "method_name": true, "grpc_status_code": true, "migrated": true}) {
		t.Errorf("labels of csi_operations_seconds: %v, want driver_name, method_name, grpc_status_code, migrated", names)
	}
}
