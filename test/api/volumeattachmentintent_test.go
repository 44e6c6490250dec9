/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"fmt"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	nodeNameSyntax = "nodeName must be the name of a Node: lower case letters, digits, '-' and '.', beginning and " +
		"ending with a letter or digit"
	claimNameSyntax = "claimName must be the name of a PersistentVolumeClaim: lower case letters, digits, '-' and '.', " +
		"beginning and ending with a letter or digit"
	kubernetesName = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', " +
		"and must start and end with " +
		`an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
		`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`
	podNameSyntax = "podName must be the name of a Pod: lower case letters, digits, '-' and '.', beginning and " +
		"ending with a letter or digit"
	volumeNameSyntax = "volumeName must be the name of one of the pod's volumes: lower case letters, digits and '-', " +
		"beginning and ending with a letter or digit"
	forceAfterRange = "forceAfter must be a duration from 1m to 720h, in hours, minutes and seconds such as 6m or 1h30m"
	subPathRelative = "subPath must be relative to the root of the volume"
	subPathParts    = "subPath must not contain '.', '..' or empty parts"
	optionAllowed   = "an intent may ask for the mount options noexec, nodev, nosuid, noatime, nodiratime, relatime " +
		"and lazytime; " +
		"an administrator can set others in mountOptions of the PersistentVolume or StorageClass; for a read-only volume " +
		"set readOnly"
	seLinuxLevel = "spec.mount.seLinuxOptions: Invalid value: seLinuxOptions need a level such as s0:c123,c456; without " +
		"one the container runtime chooses it, and the volume would get another"
	seLinuxNames = "spec.mount.seLinuxOptions: Invalid value: user, role and type of seLinuxOptions have letters, " +
		"digits, '_' and '.'"
	kubeletAttached = "spec.desiredState: Invalid value: with publisher Kubelet the kubelet mounts the volume, so " +
		"desiredState must be Attached"
	kubeletMount = "spec.mount: Invalid value: with publisher Kubelet the kubelet mounts the volume, so mount must " +
		"not be set"
	oneSource = "spec.volume: Invalid value: exactly one volume source must be set: persistentVolumeClaim or " +
		"podVolume"
)

const (
	claimName  = "spec.volume.persistentVolumeClaim.claimName"
	forceAfter = "spec.detachPolicy.forceAfter"
	podVolume  = "spec.volume.podVolume"
	subPath    = "spec.mount.subPath"
	options    = "spec.mount.options"
)

// createCase is an intent that differs from a valid one, and the refusals that the API server answers with.
type createCase struct {
	name string
	with changes
	want []string // none: accepted
}

func (s server) testCreateIntent(t *testing.T) {
	cases := []createCase{
		{name: "the required fields only", with: nil},
		{name: "everything set", with: changes{
			"spec.desiredState": "Staged", "spec.publisher": "Agent", "spec.readOnly": true, options: []any{"noatime", "noexec"},
			"spec.mount.fsGroup": int64(2000), "spec.mount.fsGroupChangePolicy": "OnRootMismatch", subPath: "a/b",
			forceAfter: "6m",
		}},

		{name: "node name with dots", with: changes{"spec.nodeName": "node-1.example.com"}},
		{name: "node name missing", with: changes{"spec.nodeName": nil}, want: []string{"spec.nodeName: Required value"}},
		{name: "node name in capitals", with: changes{"spec.nodeName": "Node_A"},
			want: invalid("spec.nodeName", "Node_A", nodeNameSyntax)},
		{name: "node name with a slash", with: changes{"spec.nodeName": "../node-a"},
			want: invalid("spec.nodeName", "../node-a", nodeNameSyntax)},

		{name: "an intent's name in capitals", with: changes{"metadata.name": "Data_1"},
			want: invalid("metadata.name", "Data_1", kubernetesName)},

		{name: "no volume", with: changes{"spec.volume": nil}, want: []string{"spec.volume: Required value"}},
		{name: "no source", with: changes{"spec.volume": map[string]any{}}, want: []string{oneSource}},
		{name: "claim name in capitals", with: changes{claimName: "Data"}, want: invalid(claimName, "Data", claimNameSyntax)},
		{name: "claim name with a slash", with: changes{claimName: "other/data"},
			want: invalid(claimName, "other/data", claimNameSyntax)},

		{name: "an unknown desired state", with: changes{"spec.desiredState": "Mounted"},
			want: []string{
				`spec.desiredState: Unsupported value: "Mounted": supported values: "Attached", "Staged", "Published"`}},
		{name: "an unknown publisher", with: changes{"spec.publisher": "Somebody"},
			want: []string{`spec.publisher: Unsupported value: "Somebody": supported values: "Agent", "Kubelet"`}},
	}
	cases = append(cases, publisherCases()...)
	cases = append(cases, podVolumeCases()...)
	cases = append(cases, durationCases()...)
	cases = append(cases, mountCases()...)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			intent := newIntent(t, fmt.Sprintf("create-%d", i), c.with)
			expectRefusals(t, s.client.Create(t.Context(), intent), c.want...)
		})
	}
}

func publisherCases() []createCase {
	return []createCase{
		{name: "the kubelet publishes what is attached",
			with: changes{"spec.publisher": "Kubelet", "spec.desiredState": "Attached"}},
		{name: "the kubelet with the default desired state", with: changes{"spec.publisher": "Kubelet"},
			want: []string{kubeletAttached}},
		{name: "the kubelet with desired state Staged",
			with: changes{"spec.publisher": "Kubelet", "spec.desiredState": "Staged"},
			want: []string{kubeletAttached}},
		{name: "the kubelet with a mount",
			with: changes{"spec.publisher": "Kubelet", "spec.desiredState": "Attached", subPath: "a"},
			want: []string{kubeletMount}},
	}
}

func podVolumeCases() []createCase {
	of := func(pod, volume string) changes {
		return changes{
			"spec.publisher": "Kubelet", "spec.desiredState": "Attached", "spec.volume.persistentVolumeClaim": nil,
			podVolume: map[string]any{"podName": pod, "volumeName": volume},
		}
	}
	agents := of("web-0.a", "disk")
	agents["spec.publisher"] = "Agent"
	both := of("web-0", "disk")
	delete(both, "spec.volume.persistentVolumeClaim")
	return []createCase{
		{name: "a volume of a pod", with: of("web-0.a", "disk-1")},
		{name: "a volume of a pod for the agent", with: agents,
			want: []string{
				"spec.publisher: Invalid value: only the kubelet can mount a podVolume, so publisher must be Kubelet"}},
		{name: "a volume of a pod and a claim", with: both, want: []string{oneSource}},
		{name: "pod name in capitals", with: of("Web", "disk"), want: invalid(podVolume+".podName", "Web", podNameSyntax)},
		{name: "pod volume's name with a dot", with: of("web", "a.b"),
			want: invalid(podVolume+".volumeName", "a.b", volumeNameSyntax)},
	}
}

func durationCases() []createCase {
	var cases []createCase
	for _, good := range []string{"1m", "60s", "6m", "1h30m", "6m0s", "1m0.5s", "720h", "720h0m0s"} {
		cases = append(cases, createCase{name: "force after " + good, with: changes{forceAfter: good}})
	}
	for _, bad := range []string{"", "6", "six minutes", "6m ", "-6m", "1d", "30m1h", "1e3s", "59s", "59.999s", "0s",
		"720h1s", "99999h", "9999999999h"} {
		cases = append(cases, createCase{name: "force after '" + bad + "'", with: changes{forceAfter: bad},
			want: invalid(forceAfter, bad, forceAfterRange)})
	}
	return append(cases, createCase{name: "an empty detach policy", with: changes{"spec.detachPolicy": map[string]any{}},
		want: []string{"spec.detachPolicy.forceAfter: Required value"}})
}

func mountCases() []createCase {
	cases := []createCase{
		{name: "a sub path", with: changes{subPath: "a/b..c/.d"}},
		{name: "an absolute sub path", with: changes{subPath: "/etc"},
			want: append(invalid(subPath, "/etc", subPathRelative), invalid(subPath, "/etc", subPathParts)...)},
		{name: "a negative group", with: changes{"spec.mount.fsGroup": int64(-1)},
			want: []string{
				"spec.mount.fsGroup: Invalid value: -1: spec.mount.fsGroup in body should be greater than or equal to 0"}},
		{name: "an SELinux label", with: changes{"spec.mount.seLinuxOptions": map[string]any{"level": "s0-s1:c1,c2.c4",
			"user": "system_u", "role": "system_r", "type": "container_t"}}},
		{name: "an SELinux label without a level", with: changes{"spec.mount.seLinuxOptions": map[string]any{"type": "x_t"}},
			want: []string{seLinuxLevel}},
		{name: "an SELinux level that ends the option", with: changes{"spec.mount.seLinuxOptions": map[string]any{
			"level": `s0",suid,x="`}}, want: []string{seLinuxLevel}},
		{name: "an SELinux user with more than a name", with: changes{"spec.mount.seLinuxOptions": map[string]any{
			"level": "s0", "user": "a:b"}}, want: []string{seLinuxNames}},
		{name: "an unknown group change policy", with: changes{"spec.mount.fsGroupChangePolicy": "Never"},
			want: []string{
				`spec.mount.fsGroupChangePolicy: Unsupported value: "Never": supported values: "OnRootMismatch", "Always"`}},
		{name: "every option that an intent may ask for",
			with: changes{options: []any{"noexec", "nodev", "nosuid", "noatime", "nodiratime", "relatime", "lazytime"}}},
	}
	for _, path := range []string{"..", ".", "a/..", "../a", "a/../b", "./a", "a/./b", "a//b", "a/"} {
		cases = append(cases,
			createCase{name: "the sub path " + path, with: changes{subPath: path}, want: invalid(subPath, path, subPathParts)})
	}
	for _, option := range []string{
		"", "suid", "dev", "exec", "rw", "ro", "NoExec", "noexec ", "noatime,suid", "bind", "rbind", "move", "remount",
		"shared", "data=journal", "errors=panic",
		"uid=0", "umask=0", "context=system_u:object_r:shadow_t:s0", "addr=10.0.0.1", "password=secret", "nolock",
		"barrier=0", "norecovery", "nouuid",
	} {
		cases = append(cases,
			createCase{name: "the option '" + option + "'", with: changes{options: []any{"noatime", option}},
				want: invalid(options+"[1]", option, optionAllowed)})
	}
	return cases
}

func (s server) testUpdateIntent(t *testing.T) {
	agent := changes{}
	kubelet := changes{"spec.publisher": "Kubelet", "spec.desiredState": "Attached"}
	cases := []struct {
		name   string
		before changes
		after  changes
		want   []string
	}{
		{name: "lowering the desired state", before: agent, after: changes{"spec.desiredState": "Attached"}},
		{name: "raising the desired state", before: changes{"spec.desiredState": "Attached"},
			after: changes{"spec.desiredState": "Published"}},
		{name: "changing the mount", before: changes{subPath: "a"}, after: changes{subPath: "b", "spec.readOnly": true}},
		{name: "taking the detach policy away", before: changes{forceAfter: "6m"}, after: changes{"spec.detachPolicy": nil}},
		{name: "leaving out what has a default", before: agent,
			after: changes{"spec.publisher": nil, "spec.desiredState": nil}},

		{name: "another node", before: agent, after: changes{"spec.nodeName": "node-b"},
			want: invalid("spec.nodeName", "node-b",
				"nodeName cannot be changed; create an intent for the other node and delete this one")},
		{name: "another claim", before: agent, after: changes{claimName: "raw"},
			want: []string{`spec.volume: Invalid value: volume cannot be changed; create another intent`}},
		{name: "the other publisher", before: kubelet, after: changes{"spec.publisher": "Agent"},
			want: invalid("spec.publisher", "Agent", "publisher cannot be changed; create another intent")},
		{name: "the other publisher by leaving it out", before: kubelet, after: changes{"spec.publisher": nil},
			want: invalid("spec.publisher", "Agent", "publisher cannot be changed; create another intent")},
		{name: "the kubelet with desired state Published", before: kubelet, after: changes{"spec.desiredState": "Published"},
			want: []string{kubeletAttached}},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			intent := newIntent(t, fmt.Sprintf("update-%d", i), c.before)
			s.create(t, intent)
			c.after.apply(t, intent)
			expectRefusals(t, s.client.Update(t.Context(), intent), c.want...)
		})
	}
}

func (s server) testIntentDefaults(t *testing.T) {
	object := newIntent(t, "defaults", changes{"status": map[string]any{"path": "/etc"}})
	s.create(t, object)
	intent := asIntent(t, object)
	if intent.Spec.DesiredState != volumesv1alpha1.DesiredPublished ||
		intent.Spec.Publisher != volumesv1alpha1.PublisherAgent {
		t.Errorf("desiredState %q, publisher %q", intent.Spec.DesiredState, intent.Spec.Publisher)
	}
	if intent.Status.ObservedGeneration != -1 {
		t.Errorf("observedGeneration is %d: kstatus would report a new intent as Current", intent.Status.ObservedGeneration)
	}
	if intent.Status.Path != "" {
		t.Errorf("the author of an intent set its status.path to %q", intent.Status.Path)
	}
}

func (s server) testIntentStatusIsASubresource(t *testing.T) {
	object := newIntent(t, "status", nil)
	s.create(t, object)
	intent := asIntent(t, object)

	intent.Status.Path = "/var/lib/hawser/published/default/status"
	intent.Status.ObservedGeneration = intent.Generation
	intent.Spec.ReadOnly = true
	if err := s.client.Status().Update(t.Context(), &intent); err != nil {
		t.Fatal(err)
	}
	if intent.Spec.ReadOnly || intent.Status.Path == "" || intent.Generation != 1 {
		t.Errorf("a status update must change the status only: %+v", intent)
	}

	intent.Status.Path = ""
	intent.Spec.ReadOnly = true
	if err := s.client.Update(t.Context(), &intent); err != nil {
		t.Fatal(err)
	}
	if !intent.Spec.ReadOnly || intent.Status.Path == "" || intent.Generation != 2 {
		t.Errorf("an update must change the spec only: %+v", intent)
	}
}

// invalid is one refusal of a string.
func invalid(field, value, message string) []string {
	return []string{fmt.Sprintf("%s: Invalid value: %q: %s", field, value, message)}
}
