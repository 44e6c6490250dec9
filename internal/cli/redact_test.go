/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// secretive are objects with secrets in the places where people put them, and what a bundle shows of each.
var secretive = map[string]struct{ document, want string }{
	"annotations of deployment tools": {`
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  namespace: shop
  name: data
  annotations:
    objectset.rio.cattle.io/applied: do-not-leak
    kapp.k14s.io/original: do-not-leak
    team: do-not-leak
    volume.kubernetes.io/selected-node: node-a
    volumes.hawser.io/in-use-by-intents: a`, "selected-node: node-a"},
	"a PersistentVolume": {`
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec:
  mountOptions: [nolock, "username=do-not-leak,password=do-not-leak", vers=3.0]
  csi: {driver: disk.example.com, volumeHandle: handle-1, volumeAttributes: {key: do-not-leak}}`,
		"- username=(left out)"},
	"a PersistentVolume of FlexVolume": {`
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec: {flexVolume: {driver: example.com/cifs, options: {password: do-not-leak}}}`, "driver: example.com/cifs"},
	"a StorageClass": {`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disk.example.com
parameters: {password: do-not-leak}
mountOptions: [password=do-not-leak]`, "- password=(left out)"},
	"an inline volume of an attachment": {`
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: va}
spec:
  attacher: disk.example.com
  nodeName: node-a
  source:
    inlineVolumeSpec:
      mountOptions: [password=do-not-leak]
      csi: {driver: disk.example.com, volumeHandle: handle-1, volumeAttributes: {key: do-not-leak}}
status: {attached: true, attachmentMetadata: {key: do-not-leak}}`, "volumeHandle: handle-1"},
	"a node state": {`
apiVersion: volumes.hawser.io/v1alpha1
kind: NodeVolumeState
metadata: {name: node-a}
spec:
  attachments:
  - volumeName: v
    mountOptions: [ro, password=do-not-leak]
    volumeAttributes: {key: do-not-leak}
    publishContext: {key: do-not-leak}`, "- password=(left out)"},
	"the template of a set": {`
apiVersion: volumes.hawser.io/v1alpha1
kind: VolumeAttachmentIntentSet
metadata: {namespace: shop, name: models}
spec: {template: {metadata: {annotations: {team: do-not-leak}}}}`, "name: models"},
	"a pod": {`
apiVersion: v1
kind: Pod
metadata: {namespace: hawser-system, name: agent}
spec:
  initContainers: [{name: a, image: image-a, args: [do-not-leak]}]
  containers:
  - name: b
    image: image-b
    command: [do-not-leak]
    env: [{name: TOKEN, value: do-not-leak}]
    livenessProbe: {exec: {command: [do-not-leak]}}
  ephemeralContainers: [{name: c, image: image-c, env: [{name: TOKEN, value: do-not-leak}], args: [do-not-leak]}]
  volumes:
  - {name: flex, flexVolume: {driver: example.com/cifs, options: {password: do-not-leak}}}
  - {name: csi, csi: {driver: disk.example.com, volumeAttributes: {password: do-not-leak}}}`, "image: image-c"},
}

func TestABundleLeavesOutWhatMayBeASecret(t *testing.T) {
	for name, tt := range secretive {
		object := decodeObject(t, tt.document)
		redact(object)
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "do-not-leak") || !strings.Contains(string(text), tt.want) {
			t.Errorf("%s: a bundle has\n%s\nwant no secret, and %q", name, text, tt.want)
		}
	}
}

// Times of writes, which managedFields have, are not in a bundle.
func TestTheObjectsOfABundleGiveTheSameReports(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		want := text(explainFixture(t, f, newFakeReader(t, f), noon), false, false)
		for i, document := range f.documents {
			object := decodeObject(t, document)
			writes := object.GetManagedFields()
			redact(object)
			object.SetManagedFields(writes)
			redacted, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			f.documents[i] = string(redacted)
		}
		got := text(explainFixture(t, f, newFakeReader(t, f), noon), false, false)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the report of redacted objects differs (-all +redacted):\n%s", f.name, diff)
		}
	}
}
