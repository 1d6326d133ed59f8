// Command webhook is an admission webhook as controller-runtime's book describes it, without a
// decision worth mentioning. `make bench-peers` compares it with belay.
//
//	webhook PORT CERTIFICATE-FOLDER
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Objects with this label must not be deleted.
const label = "peers.belay.dev/keep"

// Objects get this finalizer when they are created.
const finalizer = "peers.belay.dev/hold"

type keeper struct{}

func (keeper) ValidateCreate(context.Context, *corev1.ConfigMap) (admission.Warnings, error) {
	return nil, nil
}

func (keeper) ValidateUpdate(_ context.Context, _, _ *corev1.ConfigMap) (admission.Warnings, error) {
	return nil, nil
}

func (keeper) ValidateDelete(_ context.Context, object *corev1.ConfigMap) (admission.Warnings, error) {
	if _, kept := object.Labels[label]; kept {
		return nil, fmt.Errorf("ConfigMap %q has label %s", object.Name, label)
	}
	return nil, nil
}

func (keeper) Default(_ context.Context, object *corev1.ConfigMap) error {
	controllerutil.AddFinalizer(object, finalizer)
	return nil
}

func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: webhook PORT CERTIFICATE-FOLDER")
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New())
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: os.Args[2]})
	scheme := clientgoscheme.Scheme
	server.Register("/validate", admission.WithValidator[*corev1.ConfigMap](scheme, keeper{}))
	server.Register("/mutate", admission.WithDefaulter[*corev1.ConfigMap](scheme, keeper{}))
	return server.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}
