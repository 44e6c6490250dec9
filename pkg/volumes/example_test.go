/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
)

// server is the address of the API server that the examples are for. test/volumes, in the main module, starts one and
// runs them.
var server = os.Getenv("HAWSER_EXAMPLES_SERVER")

func TestMain(m *testing.M) {
	flag.Parse()
	if server == "" {
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// newClient connects to the cluster. A program in a pod takes rest.InClusterConfig.
func newClient() *volumes.Client {
	client, err := volumes.NewForConfig(&rest.Config{Host: server})
	if err != nil {
		panic(err)
	}
	return client
}

// A program puts the volume of a claim on a node, uses it there, and gives it back.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := newClient()

	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-on-node-a"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: "node-a",
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}},
		},
	}
	ready, err := client.CreateAndWait(ctx, intent)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("use", ready.Status.Path)

	key := types.NamespacedName{Namespace: ready.Namespace, Name: ready.Name}
	if err := client.DeleteAndWait(ctx, key); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the node has released the volume")
	// Output:
	// use /var/lib/hawser/published/default/data-on-node-a
	// the node has released the volume
}

// A program decides by the reason what to do about an intent that is not Ready. Here the claim does not exist yet.
func ExampleReasonOf() {
	// What the program can wait. The intent stays, so the next call goes on waiting.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	_, err := newClient().CreateAndWait(ctx, &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "without-claim"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-a",
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "missing"}}},
	})
	var about *volumes.Error
	switch {
	case err == nil:
		fmt.Println("the volume can be used")
	case errors.As(err, &about) && about.Stalled():
		fmt.Println("somebody has to change the intent or its claim:", about.Message)
	case volumes.ReasonOf(err) == volumesv1alpha1.ReasonClaimNotFound:
		fmt.Println("make the claim, then wait again:", errors.Is(err, context.DeadlineExceeded))
	default:
		fmt.Println(err)
	}
	// Output:
	// make the claim, then wait again: true
}

// A program lists the volumes of a pod and the groups that own their files.
func ExampleClient_VolumesOfPod() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "8d3f2b1c-6a0e-4f7e-9d57-2f1b7a3f9c10"},
		Spec: corev1.PodSpec{NodeName: "node-a", Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
				VolumeAttributes: map[string]string{volumesv1alpha1.AttributeIntent: "of-the-pod"}}}}}},
	}
	found, err := newClient().VolumesOfPod(context.Background(), pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range found {
		fmt.Println(v.Name, v.Claim, v.Ready, v.Path)
		if v.SupplementalGroup != nil {
			fmt.Println("group", *v.SupplementalGroup)
		}
	}
	// Output:
	// data data true /var/lib/hawser/published/default/of-the-pod
}
