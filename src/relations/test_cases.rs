// The manifests of `tests.rs`: one or more for each row of the catalogue.
const CASES: &[Case] = &[
    (
        "/pods",
        r#"
metadata: {name: web-1, namespace: shop}
spec:
  nodeName: node-1
  serviceAccountName: web
  priorityClassName: high
  runtimeClassName: gvisor
  schedulingGroup: {podGroupName: gang}
  imagePullSecrets: [{name: registry}]
  resourceClaims: [{name: a, resourceClaimName: gpu}, {name: b, resourceClaimTemplateName: gpus}]
  containers:
  - name: main
    env:
    - {name: PLAIN, value: db-password}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: db-password, key: p}}}
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: colours, key: c, optional: true}}}
    - {name: SELF, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    envFrom: [{secretRef: {name: all-secrets}}, {configMapRef: {name: all-settings}}]
  initContainers:
  - name: init
    env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: init-token, key: t}}}]
  ephemeralContainers:
  - name: debug
    envFrom: [{configMapRef: {name: debug-settings}}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: tls, secret: {secretName: tls, optional: true}}
  - {name: conf, configMap: {name: conf}}
  - {name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast}}}}
  - {name: all, projected: {sources: [{secret: {name: ps}}, {configMap: {name: pc}}, {clusterTrustBundle: {name: roots}}, {serviceAccountToken: {path: t}}]}}
  - {name: csi, csi: {driver: secrets.example.com, nodePublishSecretRef: {name: csi-creds}}}
  - {name: ceph, cephfs: {secretRef: {name: ceph}}}
  - {name: azure, azureFile: {secretName: azure, shareName: s}}
  - {name: tmp, emptyDir: {}}
"#,
        &[
            "pod-node spec.nodeName mentions nodes node-1",
            "pod-service-account spec.serviceAccountName needs serviceaccounts shop/web",
            "pod-priority-class spec.priorityClassName needs priorityclasses high",
            "pod-runtime-class spec.runtimeClassName needs runtimeclasses gvisor",
            "pod-group spec.schedulingGroup.podGroupName needs podgroups shop/gang",
            "pod-pull-secret spec.imagePullSecrets[0].name needs secrets shop/registry",
            "pod-resource-claim spec.resourceClaims[0].resourceClaimName needs resourceclaims shop/gpu",
            "pod-resource-claim-template spec.resourceClaims[1].resourceClaimTemplateName needs resourceclaimtemplates shop/gpus",
            "pod-secret-env spec.containers[0].env[1].valueFrom.secretKeyRef.name needs secrets shop/db-password",
            "pod-configmap-env spec.containers[0].env[2].valueFrom.configMapKeyRef.name needs (optional) configmaps shop/colours",
            "pod-secret-env spec.containers[0].envFrom[0].secretRef.name needs secrets shop/all-secrets",
            "pod-configmap-env spec.containers[0].envFrom[1].configMapRef.name needs configmaps shop/all-settings",
            "pod-secret-env spec.initContainers[0].env[0].valueFrom.secretKeyRef.name needs secrets shop/init-token",
            "pod-configmap-env spec.ephemeralContainers[0].envFrom[0].configMapRef.name needs configmaps shop/debug-settings",
            "pod-claim spec.volumes[0].persistentVolumeClaim.claimName needs persistentvolumeclaims shop/data",
            "pod-secret-volume spec.volumes[1].secret.secretName needs (optional) secrets shop/tls",
            "pod-configmap-volume spec.volumes[2].configMap.name needs configmaps shop/conf",
            "pod-ephemeral-claim spec.volumes[3].ephemeral needs persistentvolumeclaims shop/web-1-scratch",
            "pod-ephemeral-storage-class spec.volumes[3].ephemeral.volumeClaimTemplate.spec.storageClassName needs storageclasses fast",
            "pod-secret-projected spec.volumes[4].projected.sources[0].secret.name needs secrets shop/ps",
            "pod-configmap-volume spec.volumes[4].projected.sources[1].configMap.name needs configmaps shop/pc",
            "pod-trust-bundle spec.volumes[4].projected.sources[2].clusterTrustBundle.name needs clustertrustbundles roots",
            "pod-csi-driver spec.volumes[5].csi.driver needs csidrivers secrets.example.com",
            "pod-csi-secret spec.volumes[5].csi.nodePublishSecretRef.name needs secrets shop/csi-creds",
            "pod-volume-secret spec.volumes[6].cephfs.secretRef.name needs secrets shop/ceph",
            "pod-azure-file-secret spec.volumes[7].azureFile.secretName needs secrets shop/azure",
        ],
    ),
    (
        "/pods",
        r#"
metadata: {name: generated, namespace: shop}
spec: {containers: [{name: c, image: i}], volumes: [{name: os, cinder: {volumeID: v, secretRef: {name: os}}}]}
status:
  resourceClaimStatuses: [{name: a, resourceClaimName: generated-a-x1}, {name: b}]
  extendedResourceClaimStatus: {resourceClaimName: generated-extended-x2}
  nodeAllocatableResourceClaimStatuses: [{resourceClaimName: generated-node-x3}]
"#,
        &[
            "pod-volume-secret spec.volumes[0].cinder.secretRef.name needs secrets shop/os",
            "pod-generated-claim status.extendedResourceClaimStatus.resourceClaimName needs resourceclaims shop/generated-extended-x2",
            "pod-generated-claim status.nodeAllocatableResourceClaimStatuses[0].resourceClaimName needs resourceclaims shop/generated-node-x3",
            "pod-generated-claim status.resourceClaimStatuses[0].resourceClaimName needs resourceclaims shop/generated-a-x1",
        ],
    ),
    (
        "/podtemplates",
        r#"
metadata: {name: seeded, namespace: shop}
template: {spec: {containers: [{name: c, image: i}], volumes: [{name: s, ephemeral: {volumeClaimTemplate: {spec:
  {volumeAttributesClassName: gold, dataSource: {kind: PersistentVolumeClaim, name: golden}, dataSourceRef: {kind: PersistentVolumeClaim, name: silver, namespace: other}}}}}]}}
"#,
        &[
            "pod-template-claim-source template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSource.name needs persistentvolumeclaims shop/golden",
            "pod-template-claim-source template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSourceRef.name needs persistentvolumeclaims shop/silver",
            "pod-template-attributes-class template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeAttributesClassName needs volumeattributesclasses gold",
        ],
    ),
    (
        "/pods",
        "{metadata: {name: quiet, namespace: shop}, spec: {containers: [{name: c, image: i}], volumes: [{name: t, emptyDir: {}}]}}",
        &[],
    ),
    (
        "apps/deployments",
        "{metadata: {name: web, namespace: shop}, spec: {template: {spec: {volumes: [{name: v, secret: {secretName: tls}}]}}}}",
        &["pod-secret-volume spec.template.spec.volumes[0].secret.secretName needs secrets shop/tls"],
    ),
    (
        "apps/daemonsets",
        "{metadata: {name: log, namespace: ops}, spec: {template: {spec: {serviceAccountName: log}}}}",
        &["pod-service-account spec.template.spec.serviceAccountName needs serviceaccounts ops/log"],
    ),
    (
        "batch/jobs",
        "{metadata: {name: once, namespace: ops}, spec: {template: {spec: {containers: [{name: c, envFrom: [{secretRef: {name: key}}]}]}}}}",
        &["pod-secret-env spec.template.spec.containers[0].envFrom[0].secretRef.name needs secrets ops/key"],
    ),
    (
        "batch/cronjobs",
        "{metadata: {name: nightly, namespace: ops}, spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, envFrom: [{secretRef: {name: key}}]}]}}}}}}",
        &["pod-secret-env spec.jobTemplate.spec.template.spec.containers[0].envFrom[0].secretRef.name needs secrets ops/key"],
    ),
    (
        "/replicationcontrollers",
        "{metadata: {name: old, namespace: ops}, spec: {template: {spec: {volumes: [{name: v, configMap: {name: conf}}]}}}}",
        &["pod-configmap-volume spec.template.spec.volumes[0].configMap.name needs configmaps ops/conf"],
    ),
    (
        "/podtemplates",
        "{metadata: {name: t, namespace: ops}, template: {spec: {volumes: [{name: v, configMap: {name: conf}}]}}}",
        &["pod-configmap-volume template.spec.volumes[0].configMap.name needs configmaps ops/conf"],
    ),
    (
        "argoproj.io/rollouts",
        "{metadata: {name: r, namespace: ops}, spec: {template: {spec: {volumes: [{name: v, configMap: {name: conf}}]}}}}",
        &["pod-configmap-volume spec.template.spec.volumes[0].configMap.name needs configmaps ops/conf"],
    ),
    (
        "apps/controllerrevisions",
        "{metadata: {name: db-7, namespace: ops}, data: {spec: {template: {spec: {volumes: [{name: v, secret: {secretName: old-key}}]}}}}, revision: 7}",
        &["pod-secret-volume data.spec.template.spec.volumes[0].secret.secretName mentions secrets ops/old-key"],
    ),
    (
        "/serviceaccounts",
        "{metadata: {name: web, namespace: shop}, secrets: [{name: web-token}], imagePullSecrets: [{name: registry}]}",
        &[
            "service-account-secret secrets[0].name needs secrets shop/web-token",
            "service-account-secret imagePullSecrets[0].name needs secrets shop/registry",
        ],
    ),
    (
        "/secrets",
        "{metadata: {name: web-token, namespace: shop, annotations: {kubernetes.io/service-account.name: web, other: web2}}, type: kubernetes.io/service-account-token}",
        &["token-service-account metadata.annotations[\"kubernetes.io/service-account.name\"] mentions serviceaccounts shop/web"],
    ),
    (
        "/persistentvolumeclaims",
        r#"
metadata: {name: data, namespace: shop, annotations: {volume.beta.kubernetes.io/storage-class: slow}}
spec:
  volumeName: pv-1
  storageClassName: fast
  volumeAttributesClassName: gold
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: monday}
  dataSourceRef: {kind: PersistentVolumeClaim, name: other, namespace: backups}
"#,
        &[
            "claim-volume spec.volumeName needs persistentvolumes pv-1",
            "storage-class spec.storageClassName needs storageclasses fast",
            "storage-class metadata.annotations[\"volume.beta.kubernetes.io/storage-class\"] needs storageclasses slow",
            "volume-attributes-class spec.volumeAttributesClassName needs volumeattributesclasses gold",
            "claim-data-source spec.dataSource.name needs volumesnapshots shop/monday",
            "claim-data-source spec.dataSourceRef.name needs persistentvolumeclaims backups/other",
        ],
    ),
    (
        "/persistentvolumes",
        r#"
metadata: {name: pv-1}
spec:
  storageClassName: fast
  claimRef: {kind: PersistentVolumeClaim, namespace: shop, name: data, uid: 6f0e9a3c-54f1-4d5f-8a86-0f6f2b2f6a11}
  csi:
    driver: disk.example.com
    nodeStageSecretRef: {name: stage, namespace: csi}
    controllerExpandSecretRef: {name: expand, namespace: csi}
  azureFile: {secretName: azure, secretNamespace: csi, shareName: s}
  rbd: {secretRef: {name: rbd, namespace: csi}}
"#,
        &[
            "storage-class spec.storageClassName needs storageclasses fast",
            "volume-claim spec.claimRef.name mentions persistentvolumeclaims shop/data",
            "volume-csi-driver spec.csi.driver mentions csidrivers disk.example.com",
            "volume-csi-secret spec.csi.nodeStageSecretRef.name needs secrets csi/stage",
            "volume-csi-secret spec.csi.controllerExpandSecretRef.name needs secrets csi/expand",
            "volume-azure-file-secret spec.azureFile.secretName needs secrets csi/azure",
            "volume-secret spec.rbd.secretRef.name needs secrets csi/rbd",
        ],
    ),
    (
        "storage.k8s.io/storageclasses",
        r#"
metadata: {name: fast}
provisioner: disk.example.com
parameters:
  type: ssd
  csi.storage.k8s.io/provisioner-secret-name: provision
  csi.storage.k8s.io/provisioner-secret-namespace: csi
  csi.storage.k8s.io/controller-publish-secret-name: publish
  csi.storage.k8s.io/controller-publish-secret-namespace: csi
  csi.storage.k8s.io/node-stage-secret-name: stage
  csi.storage.k8s.io/node-stage-secret-namespace: csi
  csi.storage.k8s.io/node-publish-secret-name: ${pvc.name}
  csi.storage.k8s.io/node-publish-secret-namespace: csi
  csi.storage.k8s.io/controller-expand-secret-name: expand
  csi.storage.k8s.io/controller-expand-secret-namespace: csi
"#,
        &[
            "storage-class-driver provisioner needs csidrivers disk.example.com",
            "storage-class-provisioner-secret parameters[\"csi.storage.k8s.io/provisioner-secret-name\"] needs secrets csi/provision",
            "storage-class-publish-secret parameters[\"csi.storage.k8s.io/controller-publish-secret-name\"] needs secrets csi/publish",
            "storage-class-stage-secret parameters[\"csi.storage.k8s.io/node-stage-secret-name\"] needs secrets csi/stage",
            "storage-class-expand-secret parameters[\"csi.storage.k8s.io/controller-expand-secret-name\"] needs secrets csi/expand",
        ],
    ),
    (
        "storage.k8s.io/storageclasses",
        "{metadata: {name: plain}, parameters: {csi.storage.k8s.io/node-publish-secret-name: np, csi.storage.k8s.io/node-publish-secret-namespace: csi, csi.storage.k8s.io/node-expand-secret-name: ne, csi.storage.k8s.io/node-expand-secret-namespace: csi}}",
        &[
            "storage-class-node-expand-secret parameters[\"csi.storage.k8s.io/node-expand-secret-name\"] needs secrets csi/ne",
            "storage-class-node-publish-secret parameters[\"csi.storage.k8s.io/node-publish-secret-name\"] needs secrets csi/np"],
    ),
    (
        "snapshot.storage.k8s.io/volumesnapshotclasses",
        "{metadata: {name: daily}, driver: d, parameters: {csi.storage.k8s.io/snapshotter-secret-name: snap, csi.storage.k8s.io/snapshotter-secret-namespace: csi}}",
        &["snapshot-class-secret parameters[\"csi.storage.k8s.io/snapshotter-secret-name\"] needs secrets csi/snap"],
    ),
    (
        "storage.k8s.io/volumeattributesclasses",
        "{metadata: {name: gold}, driverName: d, parameters: {iops: '9', csi.storage.k8s.io/controller-modify-secret-name: mod, csi.storage.k8s.io/controller-modify-secret-namespace: csi}}",
        &["attributes-class-secret parameters[\"csi.storage.k8s.io/controller-modify-secret-name\"] needs secrets csi/mod"],
    ),
    (
        "storage.k8s.io/volumeattachments",
        "{metadata: {name: va}, spec: {attacher: disk.example.com, nodeName: node-1, source: {persistentVolumeName: pv-1}}}",
        &[
            "attachment-volume spec.source.persistentVolumeName needs persistentvolumes pv-1",
            "attachment-driver spec.attacher needs csidrivers disk.example.com",
            "attachment-node spec.nodeName mentions nodes node-1",
        ],
    ),
    (
        "storage.k8s.io/csistoragecapacities",
        "{metadata: {name: c, namespace: csi}, storageClassName: fast, capacity: 1Gi}",
        &["capacity-storage-class storageClassName mentions storageclasses fast"],
    ),
    (
        "storage.k8s.io/csinodes",
        "{metadata: {name: node-1}, spec: {drivers: []}}",
        &["csi-node metadata.name mentions nodes node-1"],
    ),
    (
        "apps/statefulsets",
        r#"
metadata: {name: postgres, namespace: db}
spec:
  serviceName: postgres
  replicas: 3
  template: {spec: {containers: [{name: c, image: postgres}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast, volumeAttributesClassName: gold, dataSource: {kind: PersistentVolumeClaim, name: golden}}}]
"#,
        &[
            "stateful-set-service spec.serviceName needs services db/postgres",
            "stateful-set-claims spec.volumeClaimTemplates[0] needs persistentvolumeclaims db/data-postgres-[0..]",
            "stateful-set-claim-source spec.volumeClaimTemplates[0].spec.dataSource.name needs persistentvolumeclaims db/golden",
            "stateful-set-storage-class spec.volumeClaimTemplates[0].spec.storageClassName needs storageclasses fast",
            "stateful-set-attributes-class spec.volumeClaimTemplates[0].spec.volumeAttributesClassName needs volumeattributesclasses gold",
        ],
    ),
    (
        "autoscaling/horizontalpodautoscalers",
        "{metadata: {name: web, namespace: shop}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}",
        &["autoscaler-target spec.scaleTargetRef.name mentions deployments shop/web"],
    ),
    (
        "policy/poddisruptionbudgets",
        "{metadata: {name: web, namespace: shop}, spec: {selector: {matchLabels: {app: web}}}}",
        &["disruption-budget-pods spec.selector mentions pods shop/[In(\"app\", [\"web\"])]"],
    ),
    (
        "/services",
        "{metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}",
        &["service-pods spec.selector mentions pods shop/[In(\"app\", [\"web\"])]"],
    ),
    ("/services", "{metadata: {name: headless, namespace: shop}, spec: {selector: {}}}", &[]),
    (
        "/services",
        "{metadata: {name: external, namespace: shop}, spec: {type: ExternalName, externalName: example.com}}",
        &[],
    ),
    (
        "discovery.k8s.io/endpointslices",
        "{metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}, endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: web-1, namespace: shop}}]}",
        &[
            "endpoint-slice-service metadata.labels[\"kubernetes.io/service-name\"] mentions services shop/web",
            "endpoint-slice-target endpoints[0].targetRef.name mentions pods shop/web-1",
        ],
    ),
    (
        "networking.k8s.io/networkpolicies",
        r#"
metadata: {name: np, namespace: shop}
spec:
  podSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}
  ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}}]}]
"#,
        &[
            "network-policy-pods spec.podSelector mentions pods shop/[In(\"app\", [\"web\"])]",
            "network-policy-namespaces spec.ingress[0].from[0].namespaceSelector mentions namespaces [In(\"kubernetes.io/metadata.name\", [\"ops\"])]",
            "network-policy-namespace spec.ingress[0].from[0].namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"] mentions namespaces ops",
        ],
    ),
    (
        "networking.k8s.io/ingresses",
        r#"
metadata: {name: edge, namespace: shop}
spec:
  ingressClassName: nginx
  tls: [{hosts: [a.example.com], secretName: tls}]
  defaultBackend: {resource: {apiGroup: k8s.example.com, kind: Bucket, name: static}}
  rules: [{host: a.example.com, http: {paths: [{path: /, backend: {service: {name: web, port: {number: 80}}}}]}}]
"#,
        &[
            "ingress-class spec.ingressClassName needs ingressclasses nginx",
            "ingress-secret spec.tls[0].secretName needs secrets shop/tls",
            "ingress-resource spec.defaultBackend.resource.name needs Bucket shop/static",
            "ingress-service spec.rules[0].http.paths[0].backend.service.name needs services shop/web",
        ],
    ),
    (
        "networking.k8s.io/ingressclasses",
        "{metadata: {name: nginx}, spec: {controller: c, parameters: {kind: ConfigMap, name: params, namespace: ops, scope: Namespace}}}",
        &["ingress-class-parameters spec.parameters.name needs configmaps ops/params"],
    ),
    (
        "rbac.authorization.k8s.io/rolebindings",
        r#"
metadata: {name: rb, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: alice}, {kind: ServiceAccount, name: robot, namespace: ops}]
"#,
        &[
            "binding-role roleRef.name needs roles shop/reader",
            "binding-service-account subjects[1].name mentions serviceaccounts ops/robot",
            "binding-namespace subjects[1].namespace mentions namespaces ops",
        ],
    ),
    (
        "rbac.authorization.k8s.io/clusterrolebindings",
        "{metadata: {name: crb}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}, subjects: [{kind: Group, name: ops}]}",
        &["binding-role roleRef.name needs clusterroles admin"],
    ),
    (
        "rbac.authorization.k8s.io/clusterroles",
        "{metadata: {name: sum}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {part: 'true'}}]}}",
        &["role-aggregation aggregationRule.clusterRoleSelectors[0] mentions clusterroles [In(\"part\", [\"true\"])]"],
    ),
    (
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        r#"
metadata: {name: w}
webhooks:
- {name: a.example.com, clientConfig: {url: "https://example.com"}}
- {name: b.example.com, clientConfig: {service: {name: hook, namespace: ops}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}
"#,
        &[
            "webhook-service webhooks[1].clientConfig.service.name needs services ops/hook",
            "webhook-namespace webhooks[1].namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"] mentions namespaces shop",
        ],
    ),
    (
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        "{metadata: {name: m}, webhooks: [{name: a, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [ops]}, {key: team, operator: In, values: [blue]}]}}]}",
        &["webhook-namespace webhooks[0].namespaceSelector.matchExpressions[0].values[0] mentions namespaces ops"],
    ),
    (
        "admissionregistration.k8s.io/validatingadmissionpolicies",
        "{metadata: {name: p}, spec: {matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}}}",
        &["admission-policy-namespace spec.matchConstraints.namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"] mentions namespaces shop"],
    ),
    (
        "networking.k8s.io/networkpolicies",
        "{metadata: {name: peers, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}, egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}}",
        &[
            "network-policy-pods spec.podSelector mentions pods shop/[In(\"app\", [\"db\"])]",
            "network-policy-peer-pods spec.egress[0].to[0].podSelector mentions pods shop/[In(\"app\", [\"web\"])]",
        ],
    ),
    (
        "apps/deployments",
        "{metadata: {name: near, namespace: shop}, spec: {template: {spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaces: [ops]}]}}}}}}",
        &["pod-affinity-namespace spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaces[0] mentions namespaces ops"],
    ),
    (
        "apiregistration.k8s.io/apiservices",
        "{metadata: {name: v1beta1.metrics.k8s.io}, spec: {service: {name: metrics-server, namespace: kube-system}}}",
        &["api-service spec.service.name needs services kube-system/metrics-server"],
    ),
    (
        "apiextensions.k8s.io/customresourcedefinitions",
        "{metadata: {name: widgets.example.com}, spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: convert, namespace: ops}}}}}}",
        &["conversion-service spec.conversion.webhook.clientConfig.service.name needs services ops/convert"],
    ),
    (
        "admissionregistration.k8s.io/validatingadmissionpolicybindings",
        "{metadata: {name: b}, spec: {policyName: no-root, validationActions: [Deny]}}",
        &["validating-policy-binding spec.policyName needs validatingadmissionpolicies no-root"],
    ),
    (
        "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
        "{metadata: {name: b}, spec: {policyName: add-label}}",
        &["mutating-policy-binding spec.policyName needs mutatingadmissionpolicies add-label"],
    ),
    (
        "resource.k8s.io/resourceclaims",
        "{metadata: {name: gpu, namespace: ml}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}, {name: s, firstAvailable: [{name: t, deviceClassName: tpu}]}]}}}",
        &[
            "resource-claim-class spec.devices.requests[0].exactly.deviceClassName needs deviceclasses gpu",
            "resource-claim-class spec.devices.requests[1].firstAvailable[0].deviceClassName needs deviceclasses tpu",
        ],
    ),
    (
        "resource.k8s.io/resourceclaimtemplates",
        "{metadata: {name: gpus, namespace: ml}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}}",
        &["resource-claim-class spec.spec.devices.requests[0].exactly.deviceClassName needs deviceclasses gpu"],
    ),
    (
        "resource.k8s.io/resourceslices",
        "{metadata: {name: slice}, spec: {nodeName: node-1, driver: d}}",
        &["resource-slice-node spec.nodeName mentions nodes node-1"],
    ),
];
