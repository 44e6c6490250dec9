/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"maps"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/internal/agent/record"
)

const podTarget = "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/data/mount"

// asked is the kubelet's request for a pod with these attributes.
func asked(attributes map[string]string) *csi.NodePublishVolumeRequest {
	context := map[string]string{podNamespace: "shop", podName: "web", podUID: "uid-1", ephemeral: "true",
		kubeletPrefix + "serviceAccount.name": "default", kubeletPrefix + "of-a-later-kubelet": "x"}
	maps.Copy(context, attributes)
	return &csi.NodePublishVolumeRequest{VolumeId: "csi-1", TargetPath: podTarget, VolumeContext: context,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}}
}

func TestARequestNamesAnIntentOfThePodsNamespace(t *testing.T) {
	paths := record.Paths{Kubelet: "/var/lib/kubelet"}
	for name, c := range map[string]struct {
		attributes map[string]string
		intent     string
		claim      string
	}{
		"an intent by its name":             {map[string]string{"intent": "data"}, "data", ""},
		"a claim by the intent made for it": {map[string]string{"claim": "data"}, "web-data-", "data"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parse(paths, asked(c.attributes))
			if err != nil || r.intent.Namespace != "shop" || !strings.HasPrefix(r.intent.Name, c.intent) ||
				r.claim != c.claim {
				t.Errorf("request %+v, error %v; want intent shop/%s and claim %q", r, err, c.intent, c.claim)
			}
		})
	}
}

func TestTheKubeletsTokensHaveNoEffect(t *testing.T) {
	const tokens = kubeletPrefix + "serviceAccount.tokens"
	inContext, inSecrets := asked(map[string]string{"intent": "data", tokens: `{"":{"token":"hidden"}}`}),
		asked(map[string]string{"intent": "data"})
	inSecrets.Secrets = map[string]string{tokens: `{"":{"token":"hidden"}}`}
	for name, request := range map[string]*csi.NodePublishVolumeRequest{
		"in the volume context": inContext, "in the Secrets": inSecrets,
	} {
		r, err := parse(record.Paths{Kubelet: "/var/lib/kubelet"}, request)
		if err != nil || r.intent.Name != "data" {
			t.Errorf("request with tokens %s: %+v, error %v; want the intent data", name, r, err)
		}
	}
	inSecrets.Secrets["password"] = "hidden"
	if _, err := parse(record.Paths{Kubelet: "/var/lib/kubelet"}, inSecrets); err == nil ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("request with tokens and a Secret of the pod: error %v, want one that shows no value", err)
	}
}

func TestARequestForADirectoryHasASelector(t *testing.T) {
	attributes := map[string]string{"intents": "app in (db), tier!=test"}
	r, err := parse(record.Paths{Kubelet: "/var/lib/kubelet"}, asked(attributes))
	if err != nil || r.selector == nil || r.selector.String() != "app in (db),tier!=test" || r.intent.Name != "" {
		t.Errorf("request %+v, error %v; want the selector app in (db),tier!=test and no intent", r, err)
	}
}

func TestARequestIsRefusedWithTheReason(t *testing.T) {
	paths := record.Paths{Kubelet: "/var/lib/kubelet"}
	intent := map[string]string{"intent": "data"}
	changed := func(change func(*csi.NodePublishVolumeRequest)) *csi.NodePublishVolumeRequest {
		r := asked(intent)
		change(r)
		return r
	}
	const outside = "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/../mount"
	block := &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	type asks = *csi.NodePublishVolumeRequest
	for name, c := range map[string]struct {
		request asks
		want    string
	}{
		"neither an intent nor a claim": {asked(nil), "names neither"},
		"an intent and a selector":      {asked(map[string]string{"intent": "a", "intents": "app=db"}), "name one of them"},
		"a claim and a selector":        {asked(map[string]string{"claim": "a", "intents": "app=db"}), "name one of them"},
		"an empty selector":             {asked(map[string]string{"intents": " "}), "is an empty selector"},
		"no selector":                   {asked(map[string]string{"intents": "app in"}), "is not a label selector"},
		"both":                          {asked(map[string]string{"intent": "a", "claim": "b"}), "name one of them"},
		"an unknown attribute": {asked(map[string]string{"intent": "a", "node": "b"}),
			`unknown attribute "node"`},
		"an empty name":           {asked(map[string]string{"claim": ""}), "is not a name"},
		"a path":                  {asked(map[string]string{"intent": "../data"}), "is not a name"},
		"a name with a namespace": {asked(map[string]string{"intent": "other/data"}), "is not a name"},
		"an absolute path":        {asked(map[string]string{"intent": "/etc"}), "is not a name"},
		"a claim that is a path":  {asked(map[string]string{"claim": "../../data"}), "is not a name"},
		"a parent directory":      {asked(map[string]string{"intent": ".."}), "is not a name"},
		"a directory":             {asked(map[string]string{"claim": "."}), "is not a name"},
		"a hidden name":           {asked(map[string]string{"intent": ".data"}), "is not a name"},
		"a zero byte":             {asked(map[string]string{"intent": "data\x00x"}), "is not a name"},
		"a line break":            {asked(map[string]string{"intent": "data\n"}), "is not a name"},
		"a letter that looks so":  {asked(map[string]string{"intent": "d\u0430ta"}), "is not a name"},
		"another spelling":        {asked(map[string]string{"Intent": "data"}), `unknown attribute "Intent"`},
		"a space in an attribute": {asked(map[string]string{"intent ": "data"}), `unknown attribute "intent "`},
		"an empty attribute":      {asked(map[string]string{"intent": "data", "": "x"}), `unknown attribute ""`},
		"a namespace":             {asked(map[string]string{"intent": "data", "namespace": "x"}), "unknown attribute"},
		"a pod":                   {asked(map[string]string{"intent": "data", "pod.uid": "x"}), "unknown attribute"},
		"a sub path":              {asked(map[string]string{"intent": "data", "subPath": "x"}), "unknown attribute"},
		"a name that is too long": {asked(map[string]string{"intent": strings.Repeat("a", 254)}), "is not a name"},
		"no pod":                  {changed(func(r asks) { delete(r.VolumeContext, podUID) }), "podInfoOnMount"},
		"a persistent volume":     {changed(func(r asks) { r.VolumeContext[ephemeral] = "false" }), "Ephemeral"},
		"another pod's directory": {changed(func(r asks) { r.VolumeContext[podUID] = "uid-2" }), "target path"},
		"a target outside":        {changed(func(r asks) { r.TargetPath = "/etc" }), "target path"},
		"a target that leads out": {changed(func(r asks) { r.TargetPath = outside }), "target path"},
		"a raw block device":      {changed(func(r asks) { r.VolumeCapability.AccessType = block }), "raw block"},
		"a filesystem":            {changed(func(r asks) { r.VolumeCapability.GetMount().FsType = "xfs" }), "csi.fsType"},
		"a secret": {changed(func(r asks) { r.Secrets = map[string]string{"password": "hidden"} }),
			"nodePublishSecretRef"},
		"no volume ID":  {changed(func(r asks) { r.VolumeId = "" }), "volume ID"},
		"no target":     {changed(func(r asks) { r.TargetPath = "" }), "target path is missing"},
		"no capability": {changed(func(r asks) { r.VolumeCapability = nil }), "capability is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(paths, c.request)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want InvalidArgument with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("error %v shows a Secret, want none", err)
			}
		})
	}
}
