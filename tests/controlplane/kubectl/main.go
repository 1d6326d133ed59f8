// Command kubectl is Kubernetes' own. It is not part of the control plane's
// program, because the start of that program takes twice the CPU time, and the
// tests start kubectl more than a thousand times.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// util.CheckErr prints what kubectl prints and leaves with its code.
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
