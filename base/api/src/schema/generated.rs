//! The facts about every API message, written by `cargo xtask gen kinds`; do not edit.

use super::{Field, Message, Type as T, Type::Message as M, Type::SchemaOr as O, Or, f, m};
use super::Cardinality::{List, Map, One};
use super::flag::{A, E, LA, LM, LS, P, PM, PR, PX, R, Z};

#[rustfmt::skip]
pub(crate) static MESSAGES: [Message; 625] = [
m("io.k8s.api.admissionregistration.v1.ApplyConfiguration", 0, false, F0),
m("io.k8s.api.admissionregistration.v1.AuditAnnotation", 1, false, F1),
m("io.k8s.api.admissionregistration.v1.ExpressionWarning", 2, false, F2),
m("io.k8s.api.admissionregistration.v1.JSONPatch", 3, false, F3),
m("io.k8s.api.admissionregistration.v1.MatchCondition", 4, false, F4),
m("io.k8s.api.admissionregistration.v1.MatchResources", 5, true, F5),
m("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicy", 6, false, F6),
m("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBinding", 7, false, F7),
m("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBindingList", 8, false, F8),
m("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBindingSpec", 9, false, F9),
m("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyList", 10, false, F10),
m("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec", 11, false, F11),
m("io.k8s.api.admissionregistration.v1.MutatingWebhook", 12, false, F12),
m("io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration", 13, false, F13),
m("io.k8s.api.admissionregistration.v1.MutatingWebhookConfigurationList", 14, false, F14),
m("io.k8s.api.admissionregistration.v1.Mutation", 15, false, F15),
m("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", 16, true, F16),
m("io.k8s.api.admissionregistration.v1.ParamKind", 17, true, F17),
m("io.k8s.api.admissionregistration.v1.ParamRef", 18, true, F18),
m("io.k8s.api.admissionregistration.v1.Rule", 19, false, F19),
m("io.k8s.api.admissionregistration.v1.RuleWithOperations", 20, false, F20),
m("io.k8s.api.admissionregistration.v1.ServiceReference", 21, false, F21),
m("io.k8s.api.admissionregistration.v1.TypeChecking", 22, false, F22),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy", 23, false, F23),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding", 24, false, F24),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingList", 25, false, F25),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", 26, false, F26),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyList", 27, false, F27),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec", 28, false, F28),
m("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus", 29, false, F29),
m("io.k8s.api.admissionregistration.v1.ValidatingWebhook", 30, false, F30),
m("io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration", 31, false, F31),
m("io.k8s.api.admissionregistration.v1.ValidatingWebhookConfigurationList", 32, false, F32),
m("io.k8s.api.admissionregistration.v1.Validation", 33, false, F33),
m("io.k8s.api.admissionregistration.v1.Variable", 34, true, F34),
m("io.k8s.api.admissionregistration.v1.WebhookClientConfig", 35, false, F35),
m("io.k8s.api.apps.v1.ControllerRevision", 36, false, F36),
m("io.k8s.api.apps.v1.ControllerRevisionList", 37, false, F37),
m("io.k8s.api.apps.v1.DaemonSet", 38, false, F38),
m("io.k8s.api.apps.v1.DaemonSetCondition", 39, false, F39),
m("io.k8s.api.apps.v1.DaemonSetList", 40, false, F40),
m("io.k8s.api.apps.v1.DaemonSetSpec", 41, false, F41),
m("io.k8s.api.apps.v1.DaemonSetStatus", 42, false, F42),
m("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", 43, false, F43),
m("io.k8s.api.apps.v1.Deployment", 44, false, F44),
m("io.k8s.api.apps.v1.DeploymentCondition", 45, false, F45),
m("io.k8s.api.apps.v1.DeploymentList", 46, false, F46),
m("io.k8s.api.apps.v1.DeploymentSpec", 47, false, F47),
m("io.k8s.api.apps.v1.DeploymentStatus", 48, false, F48),
m("io.k8s.api.apps.v1.DeploymentStrategy", 49, false, F49),
m("io.k8s.api.apps.v1.ReplicaSet", 50, false, F50),
m("io.k8s.api.apps.v1.ReplicaSetCondition", 51, false, F51),
m("io.k8s.api.apps.v1.ReplicaSetList", 52, false, F52),
m("io.k8s.api.apps.v1.ReplicaSetSpec", 53, false, F53),
m("io.k8s.api.apps.v1.ReplicaSetStatus", 54, false, F54),
m("io.k8s.api.apps.v1.RollingUpdateDaemonSet", 55, false, F55),
m("io.k8s.api.apps.v1.RollingUpdateDeployment", 56, false, F56),
m("io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy", 57, false, F57),
m("io.k8s.api.apps.v1.StatefulSet", 58, false, F58),
m("io.k8s.api.apps.v1.StatefulSetCondition", 59, false, F59),
m("io.k8s.api.apps.v1.StatefulSetList", 60, false, F60),
m("io.k8s.api.apps.v1.StatefulSetOrdinals", 61, false, F61),
m("io.k8s.api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy", 62, false, F62),
m("io.k8s.api.apps.v1.StatefulSetSpec", 63, false, F63),
m("io.k8s.api.apps.v1.StatefulSetStatus", 64, false, F64),
m("io.k8s.api.apps.v1.StatefulSetUpdateStrategy", 65, false, F65),
m("io.k8s.api.authentication.v1.BoundObjectReference", 66, false, F66),
m("io.k8s.api.authentication.v1.SelfSubjectReview", 67, false, F67),
m("io.k8s.api.authentication.v1.SelfSubjectReviewStatus", 68, false, F68),
m("io.k8s.api.authentication.v1.TokenRequest", 69, false, F69),
m("io.k8s.api.authentication.v1.TokenRequestSpec", 70, false, F70),
m("io.k8s.api.authentication.v1.TokenRequestStatus", 71, false, F71),
m("io.k8s.api.authentication.v1.TokenReview", 72, false, F72),
m("io.k8s.api.authentication.v1.TokenReviewSpec", 73, false, F73),
m("io.k8s.api.authentication.v1.TokenReviewStatus", 74, false, F74),
m("io.k8s.api.authentication.v1.UserInfo", 75, false, F75),
m("io.k8s.api.authorization.v1.FieldSelectorAttributes", 76, false, F76),
m("io.k8s.api.authorization.v1.LabelSelectorAttributes", 77, false, F77),
m("io.k8s.api.authorization.v1.LocalSubjectAccessReview", 78, false, F78),
m("io.k8s.api.authorization.v1.NonResourceAttributes", 79, false, F79),
m("io.k8s.api.authorization.v1.NonResourceRule", 80, false, F80),
m("io.k8s.api.authorization.v1.ResourceAttributes", 81, false, F81),
m("io.k8s.api.authorization.v1.ResourceRule", 82, false, F82),
m("io.k8s.api.authorization.v1.SelfSubjectAccessReview", 83, false, F83),
m("io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec", 84, false, F84),
m("io.k8s.api.authorization.v1.SelfSubjectRulesReview", 85, false, F85),
m("io.k8s.api.authorization.v1.SelfSubjectRulesReviewSpec", 86, false, F86),
m("io.k8s.api.authorization.v1.SubjectAccessReview", 87, false, F87),
m("io.k8s.api.authorization.v1.SubjectAccessReviewSpec", 88, false, F88),
m("io.k8s.api.authorization.v1.SubjectAccessReviewStatus", 89, false, F89),
m("io.k8s.api.authorization.v1.SubjectRulesReviewStatus", 90, false, F90),
m("io.k8s.api.autoscaling.v1.ContainerResourceMetricSource", 91, false, F91),
m("io.k8s.api.autoscaling.v1.ContainerResourceMetricStatus", 92, false, F92),
m("io.k8s.api.autoscaling.v1.CrossVersionObjectReference", 93, true, F93),
m("io.k8s.api.autoscaling.v1.ExternalMetricSource", 94, false, F94),
m("io.k8s.api.autoscaling.v1.ExternalMetricStatus", 95, false, F95),
m("io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler", 96, false, F96),
m("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerCondition", 97, false, F97),
m("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerList", 98, false, F98),
m("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec", 99, false, F99),
m("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerStatus", 100, false, F100),
m("io.k8s.api.autoscaling.v1.MetricSpec", 101, false, F101),
m("io.k8s.api.autoscaling.v1.MetricStatus", 102, false, F102),
m("io.k8s.api.autoscaling.v1.ObjectMetricSource", 103, false, F103),
m("io.k8s.api.autoscaling.v1.ObjectMetricStatus", 104, false, F104),
m("io.k8s.api.autoscaling.v1.PodsMetricSource", 105, false, F105),
m("io.k8s.api.autoscaling.v1.PodsMetricStatus", 106, false, F106),
m("io.k8s.api.autoscaling.v1.ResourceMetricSource", 107, false, F107),
m("io.k8s.api.autoscaling.v1.ResourceMetricStatus", 108, false, F108),
m("io.k8s.api.autoscaling.v1.Scale", 109, false, F109),
m("io.k8s.api.autoscaling.v1.ScaleSpec", 110, false, F110),
m("io.k8s.api.autoscaling.v1.ScaleStatus", 111, false, F111),
m("io.k8s.api.autoscaling.v2.ContainerResourceMetricSource", 112, false, F112),
m("io.k8s.api.autoscaling.v2.ContainerResourceMetricStatus", 113, false, F113),
m("io.k8s.api.autoscaling.v2.CrossVersionObjectReference", 114, false, F114),
m("io.k8s.api.autoscaling.v2.ExternalMetricSource", 115, false, F115),
m("io.k8s.api.autoscaling.v2.ExternalMetricStatus", 116, false, F116),
m("io.k8s.api.autoscaling.v2.HPAScalingPolicy", 117, false, F117),
m("io.k8s.api.autoscaling.v2.HPAScalingRules", 118, false, F118),
m("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", 119, false, F119),
m("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior", 120, false, F120),
m("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerCondition", 121, false, F121),
m("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerList", 122, false, F122),
m("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", 123, false, F123),
m("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", 124, false, F124),
m("io.k8s.api.autoscaling.v2.MetricIdentifier", 125, false, F125),
m("io.k8s.api.autoscaling.v2.MetricSpec", 126, false, F126),
m("io.k8s.api.autoscaling.v2.MetricStatus", 127, false, F127),
m("io.k8s.api.autoscaling.v2.MetricTarget", 128, false, F128),
m("io.k8s.api.autoscaling.v2.MetricValueStatus", 129, false, F129),
m("io.k8s.api.autoscaling.v2.ObjectMetricSource", 130, false, F130),
m("io.k8s.api.autoscaling.v2.ObjectMetricStatus", 131, false, F131),
m("io.k8s.api.autoscaling.v2.PodsMetricSource", 132, false, F132),
m("io.k8s.api.autoscaling.v2.PodsMetricStatus", 133, false, F133),
m("io.k8s.api.autoscaling.v2.ResourceMetricSource", 134, false, F134),
m("io.k8s.api.autoscaling.v2.ResourceMetricStatus", 135, false, F135),
m("io.k8s.api.batch.v1.CronJob", 136, false, F136),
m("io.k8s.api.batch.v1.CronJobList", 137, false, F137),
m("io.k8s.api.batch.v1.CronJobSpec", 138, false, F138),
m("io.k8s.api.batch.v1.CronJobStatus", 139, false, F139),
m("io.k8s.api.batch.v1.Job", 140, false, F140),
m("io.k8s.api.batch.v1.JobCondition", 141, false, F141),
m("io.k8s.api.batch.v1.JobList", 142, false, F142),
m("io.k8s.api.batch.v1.JobSpec", 143, false, F143),
m("io.k8s.api.batch.v1.JobStatus", 144, false, F144),
m("io.k8s.api.batch.v1.JobTemplateSpec", 145, false, F145),
m("io.k8s.api.batch.v1.PodFailurePolicy", 146, false, F146),
m("io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement", 147, false, F147),
m("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", 148, false, F148),
m("io.k8s.api.batch.v1.PodFailurePolicyRule", 149, false, F149),
m("io.k8s.api.batch.v1.SuccessPolicy", 150, false, F150),
m("io.k8s.api.batch.v1.SuccessPolicyRule", 151, false, F151),
m("io.k8s.api.batch.v1.UncountedTerminatedPods", 152, false, F152),
m("io.k8s.api.certificates.v1.CertificateSigningRequest", 153, false, F153),
m("io.k8s.api.certificates.v1.CertificateSigningRequestCondition", 154, false, F154),
m("io.k8s.api.certificates.v1.CertificateSigningRequestList", 155, false, F155),
m("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", 156, false, F156),
m("io.k8s.api.certificates.v1.CertificateSigningRequestStatus", 157, false, F157),
m("io.k8s.api.coordination.v1.Lease", 158, false, F158),
m("io.k8s.api.coordination.v1.LeaseList", 159, false, F159),
m("io.k8s.api.coordination.v1.LeaseSpec", 160, false, F160),
m("io.k8s.api.core.v1.AWSElasticBlockStoreVolumeSource", 161, false, F161),
m("io.k8s.api.core.v1.Affinity", 162, false, F162),
m("io.k8s.api.core.v1.AppArmorProfile", 163, false, F163),
m("io.k8s.api.core.v1.AttachedVolume", 164, false, F164),
m("io.k8s.api.core.v1.AvoidPods", 165, false, F165),
m("io.k8s.api.core.v1.AzureDiskVolumeSource", 166, false, F166),
m("io.k8s.api.core.v1.AzureFilePersistentVolumeSource", 167, false, F167),
m("io.k8s.api.core.v1.AzureFileVolumeSource", 168, false, F168),
m("io.k8s.api.core.v1.Binding", 169, false, F169),
m("io.k8s.api.core.v1.CSIPersistentVolumeSource", 170, false, F170),
m("io.k8s.api.core.v1.CSIVolumeSource", 171, false, F171),
m("io.k8s.api.core.v1.Capabilities", 172, false, F172),
m("io.k8s.api.core.v1.CephFSPersistentVolumeSource", 173, false, F173),
m("io.k8s.api.core.v1.CephFSVolumeSource", 174, false, F174),
m("io.k8s.api.core.v1.CinderPersistentVolumeSource", 175, false, F175),
m("io.k8s.api.core.v1.CinderVolumeSource", 176, false, F176),
m("io.k8s.api.core.v1.ClientIPConfig", 177, false, F177),
m("io.k8s.api.core.v1.ClusterTrustBundleProjection", 178, false, F178),
m("io.k8s.api.core.v1.ComponentCondition", 179, false, F179),
m("io.k8s.api.core.v1.ComponentStatus", 180, false, F180),
m("io.k8s.api.core.v1.ComponentStatusList", 181, false, F181),
m("io.k8s.api.core.v1.ConfigMap", 182, false, F182),
m("io.k8s.api.core.v1.ConfigMapEnvSource", 183, false, F183),
m("io.k8s.api.core.v1.ConfigMapKeySelector", 184, true, F184),
m("io.k8s.api.core.v1.ConfigMapList", 185, false, F185),
m("io.k8s.api.core.v1.ConfigMapNodeConfigSource", 186, false, F186),
m("io.k8s.api.core.v1.ConfigMapProjection", 187, false, F187),
m("io.k8s.api.core.v1.ConfigMapVolumeSource", 188, false, F188),
m("io.k8s.api.core.v1.Container", 189, false, F189),
m("io.k8s.api.core.v1.ContainerExtendedResourceRequest", 190, false, F190),
m("io.k8s.api.core.v1.ContainerImage", 191, false, F191),
m("io.k8s.api.core.v1.ContainerPort", 192, false, F192),
m("io.k8s.api.core.v1.ContainerResizePolicy", 193, false, F193),
m("io.k8s.api.core.v1.ContainerRestartRule", 194, false, F194),
m("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", 195, false, F195),
m("io.k8s.api.core.v1.ContainerState", 196, false, F196),
m("io.k8s.api.core.v1.ContainerStateRunning", 197, false, F197),
m("io.k8s.api.core.v1.ContainerStateTerminated", 198, false, F198),
m("io.k8s.api.core.v1.ContainerStateWaiting", 199, false, F199),
m("io.k8s.api.core.v1.ContainerStatus", 200, false, F200),
m("io.k8s.api.core.v1.ContainerUser", 201, false, F201),
m("io.k8s.api.core.v1.DaemonEndpoint", 202, false, F202),
m("io.k8s.api.core.v1.DownwardAPIProjection", 203, false, F203),
m("io.k8s.api.core.v1.DownwardAPIVolumeFile", 204, false, F204),
m("io.k8s.api.core.v1.DownwardAPIVolumeSource", 205, false, F205),
m("io.k8s.api.core.v1.EmptyDirVolumeSource", 206, false, F206),
m("io.k8s.api.core.v1.EndpointAddress", 207, true, F207),
m("io.k8s.api.core.v1.EndpointPort", 208, true, F208),
m("io.k8s.api.core.v1.EndpointSubset", 209, false, F209),
m("io.k8s.api.core.v1.Endpoints", 210, false, F210),
m("io.k8s.api.core.v1.EndpointsList", 211, false, F211),
m("io.k8s.api.core.v1.EnvFromSource", 212, false, F212),
m("io.k8s.api.core.v1.EnvVar", 213, false, F213),
m("io.k8s.api.core.v1.EnvVarSource", 214, false, F214),
m("io.k8s.api.core.v1.EphemeralContainer", 215, false, F215),
m("io.k8s.api.core.v1.EphemeralContainerCommon", 216, false, F216),
m("io.k8s.api.core.v1.EphemeralVolumeSource", 217, false, F217),
m("io.k8s.api.core.v1.Event", 218, false, F218),
m("io.k8s.api.core.v1.EventList", 219, false, F219),
m("io.k8s.api.core.v1.EventSeries", 220, false, F220),
m("io.k8s.api.core.v1.EventSource", 221, false, F221),
m("io.k8s.api.core.v1.ExecAction", 222, false, F222),
m("io.k8s.api.core.v1.FCVolumeSource", 223, false, F223),
m("io.k8s.api.core.v1.FileKeySelector", 224, true, F224),
m("io.k8s.api.core.v1.FlexPersistentVolumeSource", 225, false, F225),
m("io.k8s.api.core.v1.FlexVolumeSource", 226, false, F226),
m("io.k8s.api.core.v1.FlockerVolumeSource", 227, false, F227),
m("io.k8s.api.core.v1.GCEPersistentDiskVolumeSource", 228, false, F228),
m("io.k8s.api.core.v1.GRPCAction", 229, false, F229),
m("io.k8s.api.core.v1.GitRepoVolumeSource", 230, false, F230),
m("io.k8s.api.core.v1.GlusterfsPersistentVolumeSource", 231, false, F231),
m("io.k8s.api.core.v1.GlusterfsVolumeSource", 232, false, F232),
m("io.k8s.api.core.v1.HTTPGetAction", 233, false, F233),
m("io.k8s.api.core.v1.HTTPHeader", 234, false, F234),
m("io.k8s.api.core.v1.HostAlias", 235, false, F235),
m("io.k8s.api.core.v1.HostIP", 236, false, F236),
m("io.k8s.api.core.v1.HostPathVolumeSource", 237, false, F237),
m("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", 238, false, F238),
m("io.k8s.api.core.v1.ISCSIVolumeSource", 239, false, F239),
m("io.k8s.api.core.v1.ImageVolumeSource", 240, false, F240),
m("io.k8s.api.core.v1.ImageVolumeStatus", 241, false, F241),
m("io.k8s.api.core.v1.KeyToPath", 242, false, F242),
m("io.k8s.api.core.v1.Lifecycle", 243, false, F243),
m("io.k8s.api.core.v1.LifecycleHandler", 244, false, F244),
m("io.k8s.api.core.v1.LimitRange", 245, false, F245),
m("io.k8s.api.core.v1.LimitRangeItem", 246, false, F246),
m("io.k8s.api.core.v1.LimitRangeList", 247, false, F247),
m("io.k8s.api.core.v1.LimitRangeSpec", 248, false, F248),
m("io.k8s.api.core.v1.LinuxContainerUser", 249, false, F249),
m("io.k8s.api.core.v1.LoadBalancerIngress", 250, false, F250),
m("io.k8s.api.core.v1.LoadBalancerStatus", 251, false, F251),
m("io.k8s.api.core.v1.LocalObjectReference", 252, true, F252),
m("io.k8s.api.core.v1.LocalVolumeSource", 253, false, F253),
m("io.k8s.api.core.v1.ModifyVolumeStatus", 254, false, F254),
m("io.k8s.api.core.v1.NFSVolumeSource", 255, false, F255),
m("io.k8s.api.core.v1.Namespace", 256, false, F256),
m("io.k8s.api.core.v1.NamespaceCondition", 257, false, F257),
m("io.k8s.api.core.v1.NamespaceList", 258, false, F258),
m("io.k8s.api.core.v1.NamespaceSpec", 259, false, F259),
m("io.k8s.api.core.v1.NamespaceStatus", 260, false, F260),
m("io.k8s.api.core.v1.Node", 261, false, F261),
m("io.k8s.api.core.v1.NodeAddress", 262, false, F262),
m("io.k8s.api.core.v1.NodeAffinity", 263, false, F263),
m("io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus", 264, false, F264),
m("io.k8s.api.core.v1.NodeCondition", 265, false, F265),
m("io.k8s.api.core.v1.NodeConfigSource", 266, false, F266),
m("io.k8s.api.core.v1.NodeConfigStatus", 267, false, F267),
m("io.k8s.api.core.v1.NodeDaemonEndpoints", 268, false, F268),
m("io.k8s.api.core.v1.NodeFeatures", 269, false, F269),
m("io.k8s.api.core.v1.NodeList", 270, false, F270),
m("io.k8s.api.core.v1.NodeProxyOptions", 271, false, F271),
m("io.k8s.api.core.v1.NodeRuntimeHandler", 272, false, F272),
m("io.k8s.api.core.v1.NodeRuntimeHandlerFeatures", 273, false, F273),
m("io.k8s.api.core.v1.NodeSelector", 274, true, F274),
m("io.k8s.api.core.v1.NodeSelectorRequirement", 275, false, F275),
m("io.k8s.api.core.v1.NodeSelectorTerm", 276, true, F276),
m("io.k8s.api.core.v1.NodeSpec", 277, false, F277),
m("io.k8s.api.core.v1.NodeStatus", 278, false, F278),
m("io.k8s.api.core.v1.NodeSwapStatus", 279, false, F279),
m("io.k8s.api.core.v1.NodeSystemInfo", 280, false, F280),
m("io.k8s.api.core.v1.ObjectFieldSelector", 281, true, F281),
m("io.k8s.api.core.v1.ObjectReference", 282, true, F282),
m("io.k8s.api.core.v1.PersistentVolume", 283, false, F283),
m("io.k8s.api.core.v1.PersistentVolumeClaim", 284, false, F284),
m("io.k8s.api.core.v1.PersistentVolumeClaimCondition", 285, false, F285),
m("io.k8s.api.core.v1.PersistentVolumeClaimList", 286, false, F286),
m("io.k8s.api.core.v1.PersistentVolumeClaimSpec", 287, false, F287),
m("io.k8s.api.core.v1.PersistentVolumeClaimStatus", 288, false, F288),
m("io.k8s.api.core.v1.PersistentVolumeClaimTemplate", 289, false, F289),
m("io.k8s.api.core.v1.PersistentVolumeClaimVolumeSource", 290, false, F290),
m("io.k8s.api.core.v1.PersistentVolumeList", 291, false, F291),
m("io.k8s.api.core.v1.PersistentVolumeSource", 292, false, F292),
m("io.k8s.api.core.v1.PersistentVolumeSpec", 293, false, F293),
m("io.k8s.api.core.v1.PersistentVolumeStatus", 294, false, F294),
m("io.k8s.api.core.v1.PhotonPersistentDiskVolumeSource", 295, false, F295),
m("io.k8s.api.core.v1.Pod", 296, false, F296),
m("io.k8s.api.core.v1.PodAffinity", 297, false, F297),
m("io.k8s.api.core.v1.PodAffinityTerm", 298, false, F298),
m("io.k8s.api.core.v1.PodAntiAffinity", 299, false, F299),
m("io.k8s.api.core.v1.PodAttachOptions", 300, false, F300),
m("io.k8s.api.core.v1.PodCertificateProjection", 301, false, F301),
m("io.k8s.api.core.v1.PodCondition", 302, false, F302),
m("io.k8s.api.core.v1.PodDNSConfig", 303, false, F303),
m("io.k8s.api.core.v1.PodDNSConfigOption", 304, false, F304),
m("io.k8s.api.core.v1.PodExecOptions", 305, false, F305),
m("io.k8s.api.core.v1.PodExtendedResourceClaimStatus", 306, false, F306),
m("io.k8s.api.core.v1.PodIP", 307, false, F307),
m("io.k8s.api.core.v1.PodList", 308, false, F308),
m("io.k8s.api.core.v1.PodLogOptions", 309, false, F309),
m("io.k8s.api.core.v1.PodOS", 310, false, F310),
m("io.k8s.api.core.v1.PodPortForwardOptions", 311, false, F311),
m("io.k8s.api.core.v1.PodProxyOptions", 312, false, F312),
m("io.k8s.api.core.v1.PodReadinessGate", 313, false, F313),
m("io.k8s.api.core.v1.PodResourceClaim", 314, false, F314),
m("io.k8s.api.core.v1.PodResourceClaimStatus", 315, false, F315),
m("io.k8s.api.core.v1.PodSchedulingGate", 316, false, F316),
m("io.k8s.api.core.v1.PodSchedulingGroup", 317, false, F317),
m("io.k8s.api.core.v1.PodSecurityContext", 318, false, F318),
m("io.k8s.api.core.v1.PodSignature", 319, false, F319),
m("io.k8s.api.core.v1.PodSpec", 320, false, F320),
m("io.k8s.api.core.v1.PodStatus", 321, false, F321),
m("io.k8s.api.core.v1.PodStatusResult", 322, false, F322),
m("io.k8s.api.core.v1.PodTemplate", 323, false, F323),
m("io.k8s.api.core.v1.PodTemplateList", 324, false, F324),
m("io.k8s.api.core.v1.PodTemplateSpec", 325, false, F325),
m("io.k8s.api.core.v1.PortStatus", 326, false, F326),
m("io.k8s.api.core.v1.PortworxVolumeSource", 327, false, F327),
m("io.k8s.api.core.v1.Preconditions", 328, false, F328),
m("io.k8s.api.core.v1.PreferAvoidPodsEntry", 329, false, F329),
m("io.k8s.api.core.v1.PreferredSchedulingTerm", 330, false, F330),
m("io.k8s.api.core.v1.Probe", 331, false, F331),
m("io.k8s.api.core.v1.ProbeHandler", 332, false, F332),
m("io.k8s.api.core.v1.ProjectedVolumeSource", 333, false, F333),
m("io.k8s.api.core.v1.QuobyteVolumeSource", 334, false, F334),
m("io.k8s.api.core.v1.RBDPersistentVolumeSource", 335, false, F335),
m("io.k8s.api.core.v1.RBDVolumeSource", 336, false, F336),
m("io.k8s.api.core.v1.RangeAllocation", 337, false, F337),
m("io.k8s.api.core.v1.ReplicationController", 338, false, F338),
m("io.k8s.api.core.v1.ReplicationControllerCondition", 339, false, F339),
m("io.k8s.api.core.v1.ReplicationControllerList", 340, false, F340),
m("io.k8s.api.core.v1.ReplicationControllerSpec", 341, false, F341),
m("io.k8s.api.core.v1.ReplicationControllerStatus", 342, false, F342),
m("io.k8s.api.core.v1.ResourceClaim", 343, false, F343),
m("io.k8s.api.core.v1.ResourceFieldSelector", 344, true, F344),
m("io.k8s.api.core.v1.ResourceHealth", 345, false, F345),
m("io.k8s.api.core.v1.ResourceQuota", 346, false, F346),
m("io.k8s.api.core.v1.ResourceQuotaList", 347, false, F347),
m("io.k8s.api.core.v1.ResourceQuotaSpec", 348, false, F348),
m("io.k8s.api.core.v1.ResourceQuotaStatus", 349, false, F349),
m("io.k8s.api.core.v1.ResourceRequirements", 350, false, F350),
m("io.k8s.api.core.v1.ResourceStatus", 351, false, F351),
m("io.k8s.api.core.v1.SELinuxOptions", 352, false, F352),
m("io.k8s.api.core.v1.ScaleIOPersistentVolumeSource", 353, false, F353),
m("io.k8s.api.core.v1.ScaleIOVolumeSource", 354, false, F354),
m("io.k8s.api.core.v1.ScopeSelector", 355, true, F355),
m("io.k8s.api.core.v1.ScopedResourceSelectorRequirement", 356, false, F356),
m("io.k8s.api.core.v1.SeccompProfile", 357, false, F357),
m("io.k8s.api.core.v1.Secret", 358, false, F358),
m("io.k8s.api.core.v1.SecretEnvSource", 359, false, F359),
m("io.k8s.api.core.v1.SecretKeySelector", 360, true, F360),
m("io.k8s.api.core.v1.SecretList", 361, false, F361),
m("io.k8s.api.core.v1.SecretProjection", 362, false, F362),
m("io.k8s.api.core.v1.SecretReference", 363, true, F363),
m("io.k8s.api.core.v1.SecretVolumeSource", 364, false, F364),
m("io.k8s.api.core.v1.SecurityContext", 365, false, F365),
m("io.k8s.api.core.v1.SerializedReference", 366, false, F366),
m("io.k8s.api.core.v1.Service", 367, false, F367),
m("io.k8s.api.core.v1.ServiceAccount", 368, false, F368),
m("io.k8s.api.core.v1.ServiceAccountList", 369, false, F369),
m("io.k8s.api.core.v1.ServiceAccountTokenProjection", 370, false, F370),
m("io.k8s.api.core.v1.ServiceList", 371, false, F371),
m("io.k8s.api.core.v1.ServicePort", 372, false, F372),
m("io.k8s.api.core.v1.ServiceProxyOptions", 373, false, F373),
m("io.k8s.api.core.v1.ServiceSpec", 374, false, F374),
m("io.k8s.api.core.v1.ServiceStatus", 375, false, F375),
m("io.k8s.api.core.v1.SessionAffinityConfig", 376, false, F376),
m("io.k8s.api.core.v1.SleepAction", 377, false, F377),
m("io.k8s.api.core.v1.StorageOSPersistentVolumeSource", 378, false, F378),
m("io.k8s.api.core.v1.StorageOSVolumeSource", 379, false, F379),
m("io.k8s.api.core.v1.Sysctl", 380, false, F380),
m("io.k8s.api.core.v1.TCPSocketAction", 381, false, F381),
m("io.k8s.api.core.v1.Taint", 382, false, F382),
m("io.k8s.api.core.v1.Toleration", 383, false, F383),
m("io.k8s.api.core.v1.TopologySelectorLabelRequirement", 384, false, F384),
m("io.k8s.api.core.v1.TopologySelectorTerm", 385, true, F385),
m("io.k8s.api.core.v1.TopologySpreadConstraint", 386, false, F386),
m("io.k8s.api.core.v1.TypedLocalObjectReference", 387, true, F387),
m("io.k8s.api.core.v1.TypedObjectReference", 388, false, F388),
m("io.k8s.api.core.v1.Volume", 389, false, F389),
m("io.k8s.api.core.v1.VolumeDevice", 390, false, F390),
m("io.k8s.api.core.v1.VolumeMount", 391, false, F391),
m("io.k8s.api.core.v1.VolumeMountStatus", 392, false, F392),
m("io.k8s.api.core.v1.VolumeNodeAffinity", 393, false, F393),
m("io.k8s.api.core.v1.VolumeProjection", 394, false, F394),
m("io.k8s.api.core.v1.VolumeResourceRequirements", 395, false, F395),
m("io.k8s.api.core.v1.VolumeSource", 396, false, F396),
m("io.k8s.api.core.v1.VolumeStatus", 397, false, F397),
m("io.k8s.api.core.v1.VsphereVirtualDiskVolumeSource", 398, false, F398),
m("io.k8s.api.core.v1.WeightedPodAffinityTerm", 399, false, F399),
m("io.k8s.api.core.v1.WindowsSecurityContextOptions", 400, false, F400),
m("io.k8s.api.discovery.v1.Endpoint", 401, false, F401),
m("io.k8s.api.discovery.v1.EndpointConditions", 402, false, F402),
m("io.k8s.api.discovery.v1.EndpointHints", 403, false, F403),
m("io.k8s.api.discovery.v1.EndpointPort", 404, true, F404),
m("io.k8s.api.discovery.v1.EndpointSlice", 405, false, F405),
m("io.k8s.api.discovery.v1.EndpointSliceList", 406, false, F406),
m("io.k8s.api.discovery.v1.ForNode", 407, false, F407),
m("io.k8s.api.discovery.v1.ForZone", 408, false, F408),
m("io.k8s.api.events.v1.Event", 409, false, F409),
m("io.k8s.api.events.v1.EventList", 410, false, F410),
m("io.k8s.api.events.v1.EventSeries", 411, false, F411),
m("io.k8s.api.flowcontrol.v1.ExemptPriorityLevelConfiguration", 412, false, F412),
m("io.k8s.api.flowcontrol.v1.FlowDistinguisherMethod", 413, false, F413),
m("io.k8s.api.flowcontrol.v1.FlowSchema", 414, false, F414),
m("io.k8s.api.flowcontrol.v1.FlowSchemaCondition", 415, false, F415),
m("io.k8s.api.flowcontrol.v1.FlowSchemaList", 416, false, F416),
m("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", 417, false, F417),
m("io.k8s.api.flowcontrol.v1.FlowSchemaStatus", 418, false, F418),
m("io.k8s.api.flowcontrol.v1.GroupSubject", 419, false, F419),
m("io.k8s.api.flowcontrol.v1.LimitResponse", 420, false, F420),
m("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", 421, false, F421),
m("io.k8s.api.flowcontrol.v1.NonResourcePolicyRule", 422, false, F422),
m("io.k8s.api.flowcontrol.v1.PolicyRulesWithSubjects", 423, false, F423),
m("io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration", 424, false, F424),
m("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationCondition", 425, false, F425),
m("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationList", 426, false, F426),
m("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationReference", 427, false, F427),
m("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", 428, false, F428),
m("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationStatus", 429, false, F429),
m("io.k8s.api.flowcontrol.v1.QueuingConfiguration", 430, false, F430),
m("io.k8s.api.flowcontrol.v1.ResourcePolicyRule", 431, false, F431),
m("io.k8s.api.flowcontrol.v1.ServiceAccountSubject", 432, false, F432),
m("io.k8s.api.flowcontrol.v1.Subject", 433, false, F433),
m("io.k8s.api.flowcontrol.v1.UserSubject", 434, false, F434),
m("io.k8s.api.networking.v1.HTTPIngressPath", 435, false, F435),
m("io.k8s.api.networking.v1.HTTPIngressRuleValue", 436, false, F436),
m("io.k8s.api.networking.v1.IPAddress", 437, false, F437),
m("io.k8s.api.networking.v1.IPAddressList", 438, false, F438),
m("io.k8s.api.networking.v1.IPAddressSpec", 439, false, F439),
m("io.k8s.api.networking.v1.IPBlock", 440, false, F440),
m("io.k8s.api.networking.v1.Ingress", 441, false, F441),
m("io.k8s.api.networking.v1.IngressBackend", 442, false, F442),
m("io.k8s.api.networking.v1.IngressClass", 443, false, F443),
m("io.k8s.api.networking.v1.IngressClassList", 444, false, F444),
m("io.k8s.api.networking.v1.IngressClassParametersReference", 445, false, F445),
m("io.k8s.api.networking.v1.IngressClassSpec", 446, false, F446),
m("io.k8s.api.networking.v1.IngressList", 447, false, F447),
m("io.k8s.api.networking.v1.IngressLoadBalancerIngress", 448, false, F448),
m("io.k8s.api.networking.v1.IngressLoadBalancerStatus", 449, false, F449),
m("io.k8s.api.networking.v1.IngressPortStatus", 450, false, F450),
m("io.k8s.api.networking.v1.IngressRule", 451, false, F451),
m("io.k8s.api.networking.v1.IngressRuleValue", 452, false, F452),
m("io.k8s.api.networking.v1.IngressServiceBackend", 453, false, F453),
m("io.k8s.api.networking.v1.IngressSpec", 454, false, F454),
m("io.k8s.api.networking.v1.IngressStatus", 455, false, F455),
m("io.k8s.api.networking.v1.IngressTLS", 456, false, F456),
m("io.k8s.api.networking.v1.NetworkPolicy", 457, false, F457),
m("io.k8s.api.networking.v1.NetworkPolicyEgressRule", 458, false, F458),
m("io.k8s.api.networking.v1.NetworkPolicyIngressRule", 459, false, F459),
m("io.k8s.api.networking.v1.NetworkPolicyList", 460, false, F460),
m("io.k8s.api.networking.v1.NetworkPolicyPeer", 461, false, F461),
m("io.k8s.api.networking.v1.NetworkPolicyPort", 462, false, F462),
m("io.k8s.api.networking.v1.NetworkPolicySpec", 463, false, F463),
m("io.k8s.api.networking.v1.ParentReference", 464, false, F464),
m("io.k8s.api.networking.v1.ServiceBackendPort", 465, true, F465),
m("io.k8s.api.networking.v1.ServiceCIDR", 466, false, F466),
m("io.k8s.api.networking.v1.ServiceCIDRList", 467, false, F467),
m("io.k8s.api.networking.v1.ServiceCIDRSpec", 468, false, F468),
m("io.k8s.api.networking.v1.ServiceCIDRStatus", 469, false, F469),
m("io.k8s.api.node.v1.Overhead", 470, false, F470),
m("io.k8s.api.node.v1.RuntimeClass", 471, false, F471),
m("io.k8s.api.node.v1.RuntimeClassList", 472, false, F472),
m("io.k8s.api.node.v1.Scheduling", 473, false, F473),
m("io.k8s.api.policy.v1.Eviction", 474, false, F474),
m("io.k8s.api.policy.v1.PodDisruptionBudget", 475, false, F475),
m("io.k8s.api.policy.v1.PodDisruptionBudgetList", 476, false, F476),
m("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", 477, false, F477),
m("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", 478, false, F478),
m("io.k8s.api.rbac.v1.AggregationRule", 479, false, F479),
m("io.k8s.api.rbac.v1.ClusterRole", 480, false, F480),
m("io.k8s.api.rbac.v1.ClusterRoleBinding", 481, false, F481),
m("io.k8s.api.rbac.v1.ClusterRoleBindingList", 482, false, F482),
m("io.k8s.api.rbac.v1.ClusterRoleList", 483, false, F483),
m("io.k8s.api.rbac.v1.PolicyRule", 484, false, F484),
m("io.k8s.api.rbac.v1.Role", 485, false, F485),
m("io.k8s.api.rbac.v1.RoleBinding", 486, false, F486),
m("io.k8s.api.rbac.v1.RoleBindingList", 487, false, F487),
m("io.k8s.api.rbac.v1.RoleList", 488, false, F488),
m("io.k8s.api.rbac.v1.RoleRef", 489, true, F489),
m("io.k8s.api.rbac.v1.Subject", 490, true, F490),
m("io.k8s.api.resource.v1.AllocatedDeviceStatus", 491, false, F491),
m("io.k8s.api.resource.v1.AllocationResult", 492, false, F492),
m("io.k8s.api.resource.v1.CELDeviceSelector", 493, false, F493),
m("io.k8s.api.resource.v1.CapacityRequestPolicy", 494, false, F494),
m("io.k8s.api.resource.v1.CapacityRequestPolicyRange", 495, false, F495),
m("io.k8s.api.resource.v1.CapacityRequirements", 496, false, F496),
m("io.k8s.api.resource.v1.Counter", 497, false, F497),
m("io.k8s.api.resource.v1.CounterSet", 498, false, F498),
m("io.k8s.api.resource.v1.Device", 499, false, F499),
m("io.k8s.api.resource.v1.DeviceAllocationConfiguration", 500, false, F500),
m("io.k8s.api.resource.v1.DeviceAllocationResult", 501, false, F501),
m("io.k8s.api.resource.v1.DeviceAttribute", 502, false, F502),
m("io.k8s.api.resource.v1.DeviceCapacity", 503, false, F503),
m("io.k8s.api.resource.v1.DeviceClaim", 504, false, F504),
m("io.k8s.api.resource.v1.DeviceClaimConfiguration", 505, false, F505),
m("io.k8s.api.resource.v1.DeviceClass", 506, false, F506),
m("io.k8s.api.resource.v1.DeviceClassConfiguration", 507, false, F507),
m("io.k8s.api.resource.v1.DeviceClassList", 508, false, F508),
m("io.k8s.api.resource.v1.DeviceClassSpec", 509, false, F509),
m("io.k8s.api.resource.v1.DeviceConfiguration", 510, false, F510),
m("io.k8s.api.resource.v1.DeviceConstraint", 511, false, F511),
m("io.k8s.api.resource.v1.DeviceCounterConsumption", 512, false, F512),
m("io.k8s.api.resource.v1.DeviceRequest", 513, false, F513),
m("io.k8s.api.resource.v1.DeviceRequestAllocationResult", 514, false, F514),
m("io.k8s.api.resource.v1.DeviceSelector", 515, false, F515),
m("io.k8s.api.resource.v1.DeviceSubRequest", 516, false, F516),
m("io.k8s.api.resource.v1.DeviceTaint", 517, false, F517),
m("io.k8s.api.resource.v1.DeviceToleration", 518, false, F518),
m("io.k8s.api.resource.v1.ExactDeviceRequest", 519, false, F519),
m("io.k8s.api.resource.v1.NetworkDeviceData", 520, false, F520),
m("io.k8s.api.resource.v1.NodeAllocatableResourceMapping", 521, false, F521),
m("io.k8s.api.resource.v1.OpaqueDeviceConfiguration", 522, false, F522),
m("io.k8s.api.resource.v1.ResourceClaim", 523, false, F523),
m("io.k8s.api.resource.v1.ResourceClaimConsumerReference", 524, false, F524),
m("io.k8s.api.resource.v1.ResourceClaimList", 525, false, F525),
m("io.k8s.api.resource.v1.ResourceClaimSpec", 526, false, F526),
m("io.k8s.api.resource.v1.ResourceClaimStatus", 527, false, F527),
m("io.k8s.api.resource.v1.ResourceClaimTemplate", 528, false, F528),
m("io.k8s.api.resource.v1.ResourceClaimTemplateList", 529, false, F529),
m("io.k8s.api.resource.v1.ResourceClaimTemplateSpec", 530, false, F530),
m("io.k8s.api.resource.v1.ResourcePool", 531, false, F531),
m("io.k8s.api.resource.v1.ResourceSlice", 532, false, F532),
m("io.k8s.api.resource.v1.ResourceSliceList", 533, false, F533),
m("io.k8s.api.resource.v1.ResourceSliceSpec", 534, false, F534),
m("io.k8s.api.scheduling.v1.PriorityClass", 535, false, F535),
m("io.k8s.api.scheduling.v1.PriorityClassList", 536, false, F536),
m("io.k8s.api.storage.v1.CSIDriver", 537, false, F537),
m("io.k8s.api.storage.v1.CSIDriverList", 538, false, F538),
m("io.k8s.api.storage.v1.CSIDriverSpec", 539, false, F539),
m("io.k8s.api.storage.v1.CSINode", 540, false, F540),
m("io.k8s.api.storage.v1.CSINodeDriver", 541, false, F541),
m("io.k8s.api.storage.v1.CSINodeList", 542, false, F542),
m("io.k8s.api.storage.v1.CSINodeSpec", 543, false, F543),
m("io.k8s.api.storage.v1.CSIStorageCapacity", 544, false, F544),
m("io.k8s.api.storage.v1.CSIStorageCapacityList", 545, false, F545),
m("io.k8s.api.storage.v1.StorageClass", 546, false, F546),
m("io.k8s.api.storage.v1.StorageClassList", 547, false, F547),
m("io.k8s.api.storage.v1.TokenRequest", 548, false, F548),
m("io.k8s.api.storage.v1.VolumeAttachment", 549, false, F549),
m("io.k8s.api.storage.v1.VolumeAttachmentList", 550, false, F550),
m("io.k8s.api.storage.v1.VolumeAttachmentSource", 551, false, F551),
m("io.k8s.api.storage.v1.VolumeAttachmentSpec", 552, false, F552),
m("io.k8s.api.storage.v1.VolumeAttachmentStatus", 553, false, F553),
m("io.k8s.api.storage.v1.VolumeAttributesClass", 554, false, F554),
m("io.k8s.api.storage.v1.VolumeAttributesClassList", 555, false, F555),
m("io.k8s.api.storage.v1.VolumeError", 556, false, F556),
m("io.k8s.api.storage.v1.VolumeNodeResources", 557, false, F557),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ConversionRequest", 558, false, F558),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ConversionResponse", 559, false, F559),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ConversionReview", 560, false, F560),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceColumnDefinition", 561, false, F561),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceConversion", 562, false, F562),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition", 563, false, F563),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition", 564, false, F564),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionList", 565, false, F565),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionNames", 566, false, F566),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec", 567, false, F567),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", 568, false, F568),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion", 569, false, F569),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceScale", 570, false, F570),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus", 571, false, F571),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresources", 572, false, F572),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceValidation", 573, false, F573),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ExternalDocumentation", 574, false, F574),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", 575, false, F575),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.SelectableField", 576, false, F576),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference", 577, false, F577),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule", 578, false, F578),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookClientConfig", 579, false, F579),
m("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookConversion", 580, false, F580),
m("io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup", 581, false, F581),
m("io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList", 582, false, F582),
m("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource", 583, false, F583),
m("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList", 584, false, F584),
m("io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions", 585, false, F585),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ApplyOptions", 586, false, F586),
m("io.k8s.apimachinery.pkg.apis.meta.v1.Condition", 587, false, F587),
m("io.k8s.apimachinery.pkg.apis.meta.v1.CreateOptions", 588, false, F588),
m("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", 589, false, F589),
m("io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement", 590, false, F590),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GetOptions", 591, false, F591),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GroupKind", 592, false, F592),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GroupResource", 593, false, F593),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GroupVersion", 594, false, F594),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GroupVersionForDiscovery", 595, false, F595),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GroupVersionKind", 596, false, F596),
m("io.k8s.apimachinery.pkg.apis.meta.v1.GroupVersionResource", 597, false, F597),
m("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", 598, true, F598),
m("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", 599, false, F599),
m("io.k8s.apimachinery.pkg.apis.meta.v1.List", 600, false, F600),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", 601, false, F601),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ListOptions", 602, false, F602),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", 603, false, F603),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", 604, false, F604),
m("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", 605, true, F605),
m("io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata", 606, false, F606),
m("io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList", 607, false, F607),
m("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", 608, false, F608),
m("io.k8s.apimachinery.pkg.apis.meta.v1.PatchOptions", 609, false, F609),
m("io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions", 610, false, F610),
m("io.k8s.apimachinery.pkg.apis.meta.v1.RootPaths", 611, false, F611),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ServerAddressByClientCIDR", 612, false, F612),
m("io.k8s.apimachinery.pkg.apis.meta.v1.ShardInfo", 613, false, F613),
m("io.k8s.apimachinery.pkg.apis.meta.v1.Status", 614, false, F614),
m("io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause", 615, false, F615),
m("io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails", 616, false, F616),
m("io.k8s.apimachinery.pkg.apis.meta.v1.Table", 617, false, F617),
m("io.k8s.apimachinery.pkg.apis.meta.v1.TableColumnDefinition", 618, false, F618),
m("io.k8s.apimachinery.pkg.apis.meta.v1.TableOptions", 619, false, F619),
m("io.k8s.apimachinery.pkg.apis.meta.v1.TableRow", 620, false, F620),
m("io.k8s.apimachinery.pkg.apis.meta.v1.TableRowCondition", 621, false, F621),
m("io.k8s.apimachinery.pkg.apis.meta.v1.Timestamp", 622, false, F622),
m("io.k8s.apimachinery.pkg.apis.meta.v1.UpdateOptions", 623, false, F623),
m("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent", 624, false, F624),
];
#[rustfmt::skip]
static F0: &[Field] = &[
f("expression",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F1: &[Field] = &[
f("key",1,0,T::Str,One,R,&[],"",""),
f("valueExpression",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F2: &[Field] = &[
f("fieldRef",2,0,T::Str,One,R,&[],"",""),
f("warning",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F3: &[Field] = &[
f("expression",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F4: &[Field] = &[
f("expression",2,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F5: &[Field] = &[
f("excludeResourceRules",4,0,M(16),List,E|LA,&[],"",""),
f("matchPolicy",7,0,T::Str,One,P|E,&[],"",""),
f("namespaceSelector",1,0,M(598),One,P|E,&[],"",""),
f("objectSelector",2,0,M(598),One,P|E,&[],"",""),
f("resourceRules",3,0,M(16),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F6: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(11),One,E,&[],"",""),
];
#[rustfmt::skip]
static F7: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(9),One,E,&[],"",""),
];
#[rustfmt::skip]
static F8: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(7),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F9: &[Field] = &[
f("matchResources",3,0,M(5),One,P|E,&[],"",""),
f("paramRef",2,0,M(18),One,P|E,&[],"",""),
f("policyName",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F10: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(6),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F11: &[Field] = &[
f("failurePolicy",5,0,T::Str,One,P|E,&[],"",""),
f("matchConditions",6,0,M(4),List,E|LM|PM,&["name"],"name",""),
f("matchConstraints",2,0,M(5),One,P|E,&[],"",""),
f("mutations",4,0,M(15),List,E|LA,&[],"",""),
f("paramKind",1,0,M(17),One,P|E,&[],"",""),
f("reinvocationPolicy",7,0,T::Str,One,E,&[],"",""),
f("variables",3,0,M(34),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F12: &[Field] = &[
f("admissionReviewVersions",8,0,T::Str,List,R|LA,&[],"",""),
f("clientConfig",2,0,M(35),One,R,&[],"",""),
f("failurePolicy",4,0,T::Str,One,P|E,&[],"",""),
f("matchConditions",12,0,M(4),List,E|LM|PM,&["name"],"name",""),
f("matchPolicy",9,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("namespaceSelector",5,0,M(598),One,P|E,&[],"",""),
f("objectSelector",11,0,M(598),One,P|E,&[],"",""),
f("reinvocationPolicy",10,0,T::Str,One,P|E,&[],"",""),
f("rules",3,0,M(20),List,E|LA,&[],"",""),
f("sideEffects",6,0,T::Str,One,P|R,&[],"",""),
f("timeoutSeconds",7,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F13: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("webhooks",2,0,M(12),List,E|LM|PM,&["name"],"name",""),
];
#[rustfmt::skip]
static F14: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(13),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F15: &[Field] = &[
f("applyConfiguration",3,0,M(0),One,P|E,&[],"",""),
f("jsonPatch",4,0,M(3),One,P|E,&[],"",""),
f("patchType",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F16: &[Field] = &[
f("apiGroups",1,202,T::Str,List,E|LA,&[],"",""),
f("apiVersions",2,202,T::Str,List,E|LA,&[],"",""),
f("operations",1,2,T::Str,List,E|LA,&[],"",""),
f("resourceNames",1,0,T::Str,List,E|LA,&[],"",""),
f("resources",3,202,T::Str,List,E|LA,&[],"",""),
f("scope",4,202,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F17: &[Field] = &[
f("apiVersion",1,0,T::Str,One,E,&[],"",""),
f("kind",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F18: &[Field] = &[
f("name",1,0,T::Str,One,E,&[],"",""),
f("namespace",2,0,T::Str,One,E,&[],"",""),
f("parameterNotFoundAction",4,0,T::Str,One,P|E,&[],"",""),
f("selector",3,0,M(598),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F19: &[Field] = &[
f("apiGroups",1,0,T::Str,List,E|LA,&[],"",""),
f("apiVersions",2,0,T::Str,List,E|LA,&[],"",""),
f("resources",3,0,T::Str,List,E|LA,&[],"",""),
f("scope",4,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F20: &[Field] = &[
f("apiGroups",1,2,T::Str,List,E|LA,&[],"",""),
f("apiVersions",2,2,T::Str,List,E|LA,&[],"",""),
f("operations",1,0,T::Str,List,E|LA,&[],"",""),
f("resources",3,2,T::Str,List,E|LA,&[],"",""),
f("scope",4,2,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F21: &[Field] = &[
f("name",2,0,T::Str,One,R,&[],"",""),
f("namespace",1,0,T::Str,One,R,&[],"",""),
f("path",3,0,T::Str,One,P|E,&[],"",""),
f("port",4,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F22: &[Field] = &[
f("expressionWarnings",1,0,M(2),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F23: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(28),One,E,&[],"",""),
f("status",3,0,M(29),One,E,&[],"",""),
];
#[rustfmt::skip]
static F24: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(26),One,E|R,&[],"",""),
];
#[rustfmt::skip]
static F25: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(24),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F26: &[Field] = &[
f("matchResources",3,0,M(5),One,P|E,&[],"",""),
f("paramRef",2,0,M(18),One,P|E,&[],"",""),
f("policyName",1,0,T::Str,One,E|R,&[],"",""),
f("validationActions",4,0,T::Str,List,E|R|LS,&[],"",""),
];
#[rustfmt::skip]
static F27: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(23),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F28: &[Field] = &[
f("auditAnnotations",5,0,M(1),List,E|LA,&[],"",""),
f("failurePolicy",4,0,T::Str,One,P|E,&[],"",""),
f("matchConditions",6,0,M(4),List,E|LM|PM,&["name"],"name",""),
f("matchConstraints",2,0,M(5),One,P|E,&[],"",""),
f("paramKind",1,0,M(17),One,P|E,&[],"",""),
f("validations",3,0,M(33),List,E|LA,&[],"",""),
f("variables",7,0,M(34),List,E|LM|PM,&["name"],"name",""),
];
#[rustfmt::skip]
static F29: &[Field] = &[
f("conditions",3,0,M(587),List,E|LM,&["type"],"",""),
f("observedGeneration",1,0,T::I64,One,E,&[],"",""),
f("typeChecking",2,0,M(22),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F30: &[Field] = &[
f("admissionReviewVersions",8,0,T::Str,List,R|LA,&[],"",""),
f("clientConfig",2,0,M(35),One,R,&[],"",""),
f("failurePolicy",4,0,T::Str,One,P|E,&[],"",""),
f("matchConditions",11,0,M(4),List,E|LM|PM,&["name"],"name",""),
f("matchPolicy",9,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("namespaceSelector",5,0,M(598),One,P|E,&[],"",""),
f("objectSelector",10,0,M(598),One,P|E,&[],"",""),
f("rules",3,0,M(20),List,E|LA,&[],"",""),
f("sideEffects",6,0,T::Str,One,P|R,&[],"",""),
f("timeoutSeconds",7,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F31: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("webhooks",2,0,M(30),List,E|LM|PM,&["name"],"name",""),
];
#[rustfmt::skip]
static F32: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(31),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F33: &[Field] = &[
f("expression",1,0,T::Str,One,R,&[],"",""),
f("message",2,0,T::Str,One,E,&[],"",""),
f("messageExpression",4,0,T::Str,One,E,&[],"",""),
f("reason",3,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F34: &[Field] = &[
f("expression",2,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F35: &[Field] = &[
f("caBundle",2,0,T::Bytes,One,E,&[],"",""),
f("service",1,0,M(21),One,P|E,&[],"",""),
f("url",3,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F36: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("data",2,0,T::Raw,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("revision",3,0,T::I64,One,R,&[],"",""),
];
#[rustfmt::skip]
static F37: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(36),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F38: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(41),One,E,&[],"",""),
f("status",3,0,M(42),One,E,&[],"",""),
];
#[rustfmt::skip]
static F39: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F40: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(38),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F41: &[Field] = &[
f("minReadySeconds",4,0,T::I32,One,E,&[],"",""),
f("revisionHistoryLimit",6,0,T::I32,One,P|E,&[],"",""),
f("selector",1,0,M(598),One,P|R,&[],"",""),
f("template",2,0,M(325),One,R,&[],"",""),
f("updateStrategy",3,0,M(43),One,E,&[],"",""),
];
#[rustfmt::skip]
static F42: &[Field] = &[
f("collisionCount",9,0,T::I32,One,P|E,&[],"",""),
f("conditions",10,0,M(39),List,E|LM|PM,&["type"],"type",""),
f("currentNumberScheduled",1,0,T::I32,One,R,&[],"",""),
f("desiredNumberScheduled",3,0,T::I32,One,R,&[],"",""),
f("numberAvailable",7,0,T::I32,One,E,&[],"",""),
f("numberMisscheduled",2,0,T::I32,One,R,&[],"",""),
f("numberReady",4,0,T::I32,One,R,&[],"",""),
f("numberUnavailable",8,0,T::I32,One,E,&[],"",""),
f("observedGeneration",5,0,T::I64,One,E,&[],"",""),
f("updatedNumberScheduled",6,0,T::I32,One,E,&[],"",""),
];
#[rustfmt::skip]
static F43: &[Field] = &[
f("rollingUpdate",2,0,M(55),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F44: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(47),One,E,&[],"",""),
f("status",3,0,M(48),One,E,&[],"",""),
];
#[rustfmt::skip]
static F45: &[Field] = &[
f("lastTransitionTime",7,0,T::Time,One,E,&[],"",""),
f("lastUpdateTime",6,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F46: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(44),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F47: &[Field] = &[
f("minReadySeconds",5,0,T::I32,One,E,&[],"",""),
f("paused",7,0,T::Bool,One,E,&[],"",""),
f("progressDeadlineSeconds",9,0,T::I32,One,P|E,&[],"",""),
f("replicas",1,0,T::I32,One,P|E,&[],"",""),
f("revisionHistoryLimit",6,0,T::I32,One,P|E,&[],"",""),
f("selector",2,0,M(598),One,P|R,&[],"",""),
f("strategy",4,0,M(49),One,E|PR,&[],"",""),
f("template",3,0,M(325),One,R,&[],"",""),
];
#[rustfmt::skip]
static F48: &[Field] = &[
f("availableReplicas",4,0,T::I32,One,E,&[],"",""),
f("collisionCount",8,0,T::I32,One,P|E,&[],"",""),
f("conditions",6,0,M(45),List,E|LM|PM,&["type"],"type",""),
f("observedGeneration",1,0,T::I64,One,E,&[],"",""),
f("readyReplicas",7,0,T::I32,One,E,&[],"",""),
f("replicas",2,0,T::I32,One,E,&[],"",""),
f("terminatingReplicas",9,0,T::I32,One,P|E,&[],"",""),
f("unavailableReplicas",5,0,T::I32,One,E,&[],"",""),
f("updatedReplicas",3,0,T::I32,One,E,&[],"",""),
];
#[rustfmt::skip]
static F49: &[Field] = &[
f("rollingUpdate",2,0,M(56),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F50: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(53),One,E,&[],"",""),
f("status",3,0,M(54),One,E,&[],"",""),
];
#[rustfmt::skip]
static F51: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F52: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(50),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F53: &[Field] = &[
f("minReadySeconds",4,0,T::I32,One,E,&[],"",""),
f("replicas",1,0,T::I32,One,P|E,&[],"",""),
f("selector",2,0,M(598),One,P|R,&[],"",""),
f("template",3,0,M(325),One,E,&[],"",""),
];
#[rustfmt::skip]
static F54: &[Field] = &[
f("availableReplicas",5,0,T::I32,One,E,&[],"",""),
f("conditions",6,0,M(51),List,E|LM|PM,&["type"],"type",""),
f("fullyLabeledReplicas",2,0,T::I32,One,E,&[],"",""),
f("observedGeneration",3,0,T::I64,One,E,&[],"",""),
f("readyReplicas",4,0,T::I32,One,E,&[],"",""),
f("replicas",1,0,T::I32,One,R,&[],"",""),
f("terminatingReplicas",7,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F55: &[Field] = &[
f("maxSurge",2,0,T::IntOrString,One,P|E,&[],"",""),
f("maxUnavailable",1,0,T::IntOrString,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F56: &[Field] = &[
f("maxSurge",2,0,T::IntOrString,One,P|E,&[],"",""),
f("maxUnavailable",1,0,T::IntOrString,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F57: &[Field] = &[
f("maxUnavailable",2,0,T::IntOrString,One,P|E,&[],"",""),
f("partition",1,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F58: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(63),One,E,&[],"",""),
f("status",3,0,M(64),One,E,&[],"",""),
];
#[rustfmt::skip]
static F59: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F60: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(58),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F61: &[Field] = &[
f("start",1,0,T::I32,One,0,&[],"",""),
];
#[rustfmt::skip]
static F62: &[Field] = &[
f("whenDeleted",1,0,T::Str,One,E,&[],"",""),
f("whenScaled",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F63: &[Field] = &[
f("minReadySeconds",9,0,T::I32,One,E,&[],"",""),
f("ordinals",11,0,M(61),One,P|E,&[],"",""),
f("persistentVolumeClaimRetentionPolicy",10,0,M(62),One,P|E,&[],"",""),
f("podManagementPolicy",6,0,T::Str,One,E,&[],"",""),
f("replicas",1,0,T::I32,One,P|E,&[],"",""),
f("revisionHistoryLimit",8,0,T::I32,One,P|E,&[],"",""),
f("selector",2,0,M(598),One,P|R,&[],"",""),
f("serviceName",5,0,T::Str,One,0,&[],"",""),
f("template",3,0,M(325),One,R,&[],"",""),
f("updateStrategy",7,0,M(65),One,E,&[],"",""),
f("volumeClaimTemplates",4,0,M(284),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F64: &[Field] = &[
f("availableReplicas",11,0,T::I32,One,0,&[],"",""),
f("collisionCount",9,0,T::I32,One,P|E,&[],"",""),
f("conditions",10,0,M(59),List,E|LM|PM,&["type"],"type",""),
f("currentReplicas",4,0,T::I32,One,E,&[],"",""),
f("currentRevision",6,0,T::Str,One,E,&[],"",""),
f("observedGeneration",1,0,T::I64,One,E,&[],"",""),
f("readyReplicas",3,0,T::I32,One,E,&[],"",""),
f("replicas",2,0,T::I32,One,R,&[],"",""),
f("updateRevision",7,0,T::Str,One,E,&[],"",""),
f("updatedReplicas",5,0,T::I32,One,E,&[],"",""),
];
#[rustfmt::skip]
static F65: &[Field] = &[
f("rollingUpdate",2,0,M(57),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F66: &[Field] = &[
f("apiVersion",2,0,T::Str,One,E,&[],"",""),
f("kind",1,0,T::Str,One,E,&[],"",""),
f("name",3,0,T::Str,One,E,&[],"",""),
f("uid",4,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F67: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("status",2,0,M(68),One,E,&[],"",""),
];
#[rustfmt::skip]
static F68: &[Field] = &[
f("userInfo",1,0,M(75),One,E,&[],"",""),
];
#[rustfmt::skip]
static F69: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(70),One,0,&[],"",""),
f("status",3,0,M(71),One,E,&[],"",""),
];
#[rustfmt::skip]
static F70: &[Field] = &[
f("audiences",1,0,T::Str,List,LA,&[],"",""),
f("boundObjectRef",3,0,M(66),One,P,&[],"",""),
f("expirationSeconds",4,0,T::I64,One,P,&[],"",""),
];
#[rustfmt::skip]
static F71: &[Field] = &[
f("expirationTimestamp",2,0,T::Time,One,0,&[],"",""),
f("token",1,0,T::Str,One,0,&[],"",""),
];
#[rustfmt::skip]
static F72: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(73),One,R,&[],"",""),
f("status",3,0,M(74),One,E,&[],"",""),
];
#[rustfmt::skip]
static F73: &[Field] = &[
f("audiences",2,0,T::Str,List,E|LA,&[],"",""),
f("token",1,0,T::Str,One,E|R,&[],"",""),
];
#[rustfmt::skip]
static F74: &[Field] = &[
f("audiences",4,0,T::Str,List,E|LA,&[],"",""),
f("authenticated",1,0,T::Bool,One,E,&[],"",""),
f("error",3,0,T::Str,One,E,&[],"",""),
f("user",2,0,M(75),One,E,&[],"",""),
];
#[rustfmt::skip]
static F75: &[Field] = &[
f("extra",4,0,T::Strs,Map,E,&[],"",""),
f("groups",3,0,T::Str,List,E|LA,&[],"",""),
f("uid",2,0,T::Str,One,E,&[],"",""),
f("username",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F76: &[Field] = &[
f("rawSelector",1,0,T::Str,One,E,&[],"",""),
f("requirements",2,0,M(590),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F77: &[Field] = &[
f("rawSelector",1,0,T::Str,One,E,&[],"",""),
f("requirements",2,0,M(599),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F78: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(88),One,R,&[],"",""),
f("status",3,0,M(89),One,E,&[],"",""),
];
#[rustfmt::skip]
static F79: &[Field] = &[
f("path",1,0,T::Str,One,E,&[],"",""),
f("verb",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F80: &[Field] = &[
f("nonResourceURLs",2,0,T::Str,List,E|LA,&[],"",""),
f("verbs",1,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F81: &[Field] = &[
f("fieldSelector",8,0,M(76),One,P|E,&[],"",""),
f("group",3,0,T::Str,One,E,&[],"",""),
f("labelSelector",9,0,M(77),One,P|E,&[],"",""),
f("name",7,0,T::Str,One,E,&[],"",""),
f("namespace",1,0,T::Str,One,E,&[],"",""),
f("resource",5,0,T::Str,One,E,&[],"",""),
f("subresource",6,0,T::Str,One,E,&[],"",""),
f("verb",2,0,T::Str,One,E,&[],"",""),
f("version",4,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F82: &[Field] = &[
f("apiGroups",2,0,T::Str,List,E|LA,&[],"",""),
f("resourceNames",4,0,T::Str,List,E|LA,&[],"",""),
f("resources",3,0,T::Str,List,E|LA,&[],"",""),
f("verbs",1,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F83: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(84),One,R,&[],"",""),
f("status",3,0,M(89),One,E,&[],"",""),
];
#[rustfmt::skip]
static F84: &[Field] = &[
f("nonResourceAttributes",2,0,M(79),One,P|E,&[],"",""),
f("resourceAttributes",1,0,M(81),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F85: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(86),One,R,&[],"",""),
f("status",3,0,M(90),One,E,&[],"",""),
];
#[rustfmt::skip]
static F86: &[Field] = &[
f("namespace",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F87: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(88),One,R,&[],"",""),
f("status",3,0,M(89),One,E,&[],"",""),
];
#[rustfmt::skip]
static F88: &[Field] = &[
f("extra",5,0,T::Strs,Map,E,&[],"",""),
f("groups",4,0,T::Str,List,E|LA,&[],"",""),
f("nonResourceAttributes",2,0,M(79),One,P|E,&[],"",""),
f("resourceAttributes",1,0,M(81),One,P|E,&[],"",""),
f("uid",6,0,T::Str,One,E,&[],"",""),
f("user",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F89: &[Field] = &[
f("allowed",1,0,T::Bool,One,R,&[],"",""),
f("denied",4,0,T::Bool,One,E,&[],"",""),
f("evaluationError",3,0,T::Str,One,E,&[],"",""),
f("reason",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F90: &[Field] = &[
f("evaluationError",4,0,T::Str,One,E,&[],"",""),
f("incomplete",3,0,T::Bool,One,R,&[],"",""),
f("nonResourceRules",2,0,M(80),List,R|LA,&[],"",""),
f("resourceRules",1,0,M(82),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F91: &[Field] = &[
f("container",5,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("targetAverageUtilization",2,0,T::I32,One,P|E,&[],"",""),
f("targetAverageValue",3,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F92: &[Field] = &[
f("container",4,0,T::Str,One,R,&[],"",""),
f("currentAverageUtilization",2,0,T::I32,One,P|E,&[],"",""),
f("currentAverageValue",3,0,T::Quantity,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F93: &[Field] = &[
f("apiVersion",3,0,T::Str,One,E,&[],"",""),
f("kind",1,0,T::Str,One,R,&[],"",""),
f("name",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F94: &[Field] = &[
f("metricName",1,0,T::Str,One,R,&[],"",""),
f("metricSelector",2,0,M(598),One,P|E,&[],"",""),
f("targetAverageValue",4,0,T::Quantity,One,P|E,&[],"",""),
f("targetValue",3,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F95: &[Field] = &[
f("currentAverageValue",4,0,T::Quantity,One,P|E,&[],"",""),
f("currentValue",3,0,T::Quantity,One,R,&[],"",""),
f("metricName",1,0,T::Str,One,R,&[],"",""),
f("metricSelector",2,0,M(598),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F96: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(99),One,E|R,&[],"",""),
f("status",3,0,M(100),One,E,&[],"",""),
];
#[rustfmt::skip]
static F97: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F98: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(96),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F99: &[Field] = &[
f("maxReplicas",3,0,T::I32,One,R,&[],"",""),
f("minReplicas",2,0,T::I32,One,P|E,&[],"",""),
f("scaleTargetRef",1,0,M(93),One,R,&[],"",""),
f("targetCPUUtilizationPercentage",4,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F100: &[Field] = &[
f("currentCPUUtilizationPercentage",5,0,T::I32,One,P|E,&[],"",""),
f("currentReplicas",3,0,T::I32,One,R,&[],"",""),
f("desiredReplicas",4,0,T::I32,One,R,&[],"",""),
f("lastScaleTime",2,0,T::Time,One,P|E,&[],"",""),
f("observedGeneration",1,0,T::I64,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F101: &[Field] = &[
f("containerResource",7,0,M(91),One,P|E,&[],"",""),
f("external",5,0,M(94),One,P|E,&[],"",""),
f("object",2,0,M(103),One,P|E,&[],"",""),
f("pods",3,0,M(105),One,P|E,&[],"",""),
f("resource",4,0,M(107),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F102: &[Field] = &[
f("containerResource",7,0,M(92),One,P|E,&[],"",""),
f("external",5,0,M(95),One,P|E,&[],"",""),
f("object",2,0,M(104),One,P|E,&[],"",""),
f("pods",3,0,M(106),One,P|E,&[],"",""),
f("resource",4,0,M(108),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F103: &[Field] = &[
f("averageValue",5,0,T::Quantity,One,P|E,&[],"",""),
f("metricName",2,0,T::Str,One,R,&[],"",""),
f("selector",4,0,M(598),One,P|E,&[],"",""),
f("target",1,0,M(93),One,R,&[],"",""),
f("targetValue",3,0,T::Quantity,One,R,&[],"",""),
];
#[rustfmt::skip]
static F104: &[Field] = &[
f("averageValue",5,0,T::Quantity,One,P|E,&[],"",""),
f("currentValue",3,0,T::Quantity,One,R,&[],"",""),
f("metricName",2,0,T::Str,One,R,&[],"",""),
f("selector",4,0,M(598),One,P|E,&[],"",""),
f("target",1,0,M(93),One,R,&[],"",""),
];
#[rustfmt::skip]
static F105: &[Field] = &[
f("metricName",1,0,T::Str,One,R,&[],"",""),
f("selector",3,0,M(598),One,P|E,&[],"",""),
f("targetAverageValue",2,0,T::Quantity,One,R,&[],"",""),
];
#[rustfmt::skip]
static F106: &[Field] = &[
f("currentAverageValue",2,0,T::Quantity,One,R,&[],"",""),
f("metricName",1,0,T::Str,One,R,&[],"",""),
f("selector",3,0,M(598),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F107: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("targetAverageUtilization",2,0,T::I32,One,P|E,&[],"",""),
f("targetAverageValue",3,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F108: &[Field] = &[
f("currentAverageUtilization",2,0,T::I32,One,P|E,&[],"",""),
f("currentAverageValue",3,0,T::Quantity,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F109: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(110),One,E,&[],"",""),
f("status",3,0,M(111),One,E,&[],"",""),
];
#[rustfmt::skip]
static F110: &[Field] = &[
f("replicas",1,0,T::I32,One,E,&[],"","0"),
];
#[rustfmt::skip]
static F111: &[Field] = &[
f("replicas",1,0,T::I32,One,R,&[],"",""),
f("selector",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F112: &[Field] = &[
f("container",3,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("target",2,0,M(128),One,R,&[],"",""),
];
#[rustfmt::skip]
static F113: &[Field] = &[
f("container",3,0,T::Str,One,R,&[],"",""),
f("current",2,0,M(129),One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F114: &[Field] = &[
f("apiVersion",3,0,T::Str,One,E,&[],"",""),
f("kind",1,0,T::Str,One,R,&[],"",""),
f("name",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F115: &[Field] = &[
f("metric",1,0,M(125),One,R,&[],"",""),
f("target",2,0,M(128),One,R,&[],"",""),
];
#[rustfmt::skip]
static F116: &[Field] = &[
f("current",2,0,M(129),One,R,&[],"",""),
f("metric",1,0,M(125),One,R,&[],"",""),
];
#[rustfmt::skip]
static F117: &[Field] = &[
f("periodSeconds",3,0,T::I32,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
f("value",2,0,T::I32,One,R,&[],"",""),
];
#[rustfmt::skip]
static F118: &[Field] = &[
f("policies",2,0,M(117),List,E|LA,&[],"",""),
f("selectPolicy",1,0,T::Str,One,P|E,&[],"",""),
f("stabilizationWindowSeconds",3,0,T::I32,One,P|E,&[],"",""),
f("tolerance",4,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F119: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(123),One,E|R,&[],"",""),
f("status",3,0,M(124),One,E,&[],"",""),
];
#[rustfmt::skip]
static F120: &[Field] = &[
f("scaleDown",2,0,M(118),One,P|E,&[],"",""),
f("scaleUp",1,0,M(118),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F121: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F122: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(119),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F123: &[Field] = &[
f("behavior",5,0,M(120),One,P|E,&[],"",""),
f("maxReplicas",3,0,T::I32,One,R,&[],"",""),
f("metrics",4,0,M(126),List,E|LA,&[],"",""),
f("minReplicas",2,0,T::I32,One,P|E,&[],"",""),
f("scaleTargetRef",1,0,M(114),One,R,&[],"",""),
];
#[rustfmt::skip]
static F124: &[Field] = &[
f("conditions",6,0,M(121),List,E|LM|PM,&["type"],"type",""),
f("currentMetrics",5,0,M(127),List,LA,&[],"",""),
f("currentReplicas",3,0,T::I32,One,E,&[],"",""),
f("desiredReplicas",4,0,T::I32,One,R,&[],"",""),
f("lastScaleTime",2,0,T::Time,One,P|E,&[],"",""),
f("observedGeneration",1,0,T::I64,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F125: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("selector",2,0,M(598),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F126: &[Field] = &[
f("containerResource",7,0,M(112),One,P|E,&[],"",""),
f("external",5,0,M(115),One,P|E,&[],"",""),
f("object",2,0,M(130),One,P|E,&[],"",""),
f("pods",3,0,M(132),One,P|E,&[],"",""),
f("resource",4,0,M(134),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F127: &[Field] = &[
f("containerResource",7,0,M(113),One,P|E,&[],"",""),
f("external",5,0,M(116),One,P|E,&[],"",""),
f("object",2,0,M(131),One,P|E,&[],"",""),
f("pods",3,0,M(133),One,P|E,&[],"",""),
f("resource",4,0,M(135),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F128: &[Field] = &[
f("averageUtilization",4,0,T::I32,One,P|E,&[],"",""),
f("averageValue",3,0,T::Quantity,One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
f("value",2,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F129: &[Field] = &[
f("averageUtilization",3,0,T::I32,One,P|E,&[],"",""),
f("averageValue",2,0,T::Quantity,One,P|E,&[],"",""),
f("value",1,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F130: &[Field] = &[
f("describedObject",1,0,M(114),One,R,&[],"",""),
f("metric",3,0,M(125),One,R,&[],"",""),
f("target",2,0,M(128),One,R,&[],"",""),
];
#[rustfmt::skip]
static F131: &[Field] = &[
f("current",2,0,M(129),One,R,&[],"",""),
f("describedObject",3,0,M(114),One,R,&[],"",""),
f("metric",1,0,M(125),One,R,&[],"",""),
];
#[rustfmt::skip]
static F132: &[Field] = &[
f("metric",1,0,M(125),One,R,&[],"",""),
f("target",2,0,M(128),One,R,&[],"",""),
];
#[rustfmt::skip]
static F133: &[Field] = &[
f("current",2,0,M(129),One,R,&[],"",""),
f("metric",1,0,M(125),One,R,&[],"",""),
];
#[rustfmt::skip]
static F134: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("target",2,0,M(128),One,R,&[],"",""),
];
#[rustfmt::skip]
static F135: &[Field] = &[
f("current",2,0,M(129),One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F136: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(138),One,E|R,&[],"",""),
f("status",3,0,M(139),One,E,&[],"",""),
];
#[rustfmt::skip]
static F137: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(136),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F138: &[Field] = &[
f("concurrencyPolicy",3,0,T::Str,One,E,&[],"",""),
f("failedJobsHistoryLimit",7,0,T::I32,One,P|E,&[],"",""),
f("jobTemplate",5,0,M(145),One,R,&[],"",""),
f("schedule",1,0,T::Str,One,R,&[],"",""),
f("startingDeadlineSeconds",2,0,T::I64,One,P|E,&[],"",""),
f("successfulJobsHistoryLimit",6,0,T::I32,One,P|E,&[],"",""),
f("suspend",4,0,T::Bool,One,P|E,&[],"",""),
f("timeZone",8,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F139: &[Field] = &[
f("active",1,0,M(282),List,E|LA,&[],"",""),
f("lastScheduleTime",4,0,T::Time,One,P|E,&[],"",""),
f("lastSuccessfulTime",5,0,T::Time,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F140: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(143),One,E,&[],"",""),
f("status",3,0,M(144),One,E,&[],"",""),
];
#[rustfmt::skip]
static F141: &[Field] = &[
f("lastProbeTime",3,0,T::Time,One,E,&[],"",""),
f("lastTransitionTime",4,0,T::Time,One,E,&[],"",""),
f("message",6,0,T::Str,One,E,&[],"",""),
f("reason",5,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F142: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(140),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F143: &[Field] = &[
f("activeDeadlineSeconds",3,0,T::I64,One,P|E,&[],"",""),
f("backoffLimit",7,0,T::I32,One,P|E,&[],"",""),
f("backoffLimitPerIndex",12,0,T::I32,One,P|E,&[],"",""),
f("completionMode",9,0,T::Str,One,P|E,&[],"",""),
f("completions",2,0,T::I32,One,P|E,&[],"",""),
f("managedBy",15,0,T::Str,One,P|E,&[],"",""),
f("manualSelector",5,0,T::Bool,One,P|E,&[],"",""),
f("maxFailedIndexes",13,0,T::I32,One,P|E,&[],"",""),
f("parallelism",1,0,T::I32,One,P|E,&[],"",""),
f("podFailurePolicy",11,0,M(146),One,P|E,&[],"",""),
f("podReplacementPolicy",14,0,T::Str,One,P|E,&[],"",""),
f("selector",4,0,M(598),One,P|E,&[],"",""),
f("successPolicy",16,0,M(150),One,P|E,&[],"",""),
f("suspend",10,0,T::Bool,One,P|E,&[],"",""),
f("template",6,0,M(325),One,R,&[],"",""),
f("ttlSecondsAfterFinished",8,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F144: &[Field] = &[
f("active",4,0,T::I32,One,E,&[],"",""),
f("completedIndexes",7,0,T::Str,One,E,&[],"",""),
f("completionTime",3,0,T::Time,One,P|E,&[],"",""),
f("conditions",1,0,M(141),List,E|LA|PM,&[],"type",""),
f("failed",6,0,T::I32,One,E,&[],"",""),
f("failedIndexes",10,0,T::Str,One,P|E,&[],"",""),
f("ready",9,0,T::I32,One,P|E,&[],"",""),
f("startTime",2,0,T::Time,One,P|E,&[],"",""),
f("succeeded",5,0,T::I32,One,E,&[],"",""),
f("terminating",11,0,T::I32,One,P|E,&[],"",""),
f("uncountedTerminatedPods",8,0,M(152),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F145: &[Field] = &[
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(143),One,E,&[],"",""),
];
#[rustfmt::skip]
static F146: &[Field] = &[
f("rules",1,0,M(149),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F147: &[Field] = &[
f("containerName",1,0,T::Str,One,P|E,&[],"",""),
f("operator",2,0,T::Str,One,R,&[],"",""),
f("values",3,0,T::I32,List,R|LS,&[],"",""),
];
#[rustfmt::skip]
static F148: &[Field] = &[
f("status",2,0,T::Str,One,0,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F149: &[Field] = &[
f("action",1,0,T::Str,One,R,&[],"",""),
f("onExitCodes",2,0,M(147),One,P|E,&[],"",""),
f("onPodConditions",3,0,M(148),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F150: &[Field] = &[
f("rules",1,0,M(151),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F151: &[Field] = &[
f("succeededCount",2,0,T::I32,One,P|E,&[],"",""),
f("succeededIndexes",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F152: &[Field] = &[
f("failed",2,0,T::Str,List,E|LS,&[],"",""),
f("succeeded",1,0,T::Str,List,E|LS,&[],"",""),
];
#[rustfmt::skip]
static F153: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(156),One,R,&[],"",""),
f("status",3,0,M(157),One,E,&[],"",""),
];
#[rustfmt::skip]
static F154: &[Field] = &[
f("lastTransitionTime",5,0,T::Time,One,E,&[],"",""),
f("lastUpdateTime",4,0,T::Time,One,E,&[],"",""),
f("message",3,0,T::Str,One,E,&[],"",""),
f("reason",2,0,T::Str,One,E,&[],"",""),
f("status",6,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F155: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(153),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F156: &[Field] = &[
f("expirationSeconds",8,0,T::I32,One,P|E,&[],"",""),
f("extra",6,0,T::Strs,Map,E,&[],"",""),
f("groups",4,0,T::Str,List,E|LA,&[],"",""),
f("request",1,0,T::Bytes,One,R,&[],"",""),
f("signerName",7,0,T::Str,One,R,&[],"",""),
f("uid",3,0,T::Str,One,E,&[],"",""),
f("usages",5,0,T::Str,List,E|LA,&[],"",""),
f("username",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F157: &[Field] = &[
f("certificate",2,0,T::Bytes,One,E,&[],"",""),
f("conditions",1,0,M(154),List,E|LM,&["type"],"",""),
];
#[rustfmt::skip]
static F158: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(160),One,E,&[],"",""),
];
#[rustfmt::skip]
static F159: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(158),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F160: &[Field] = &[
f("acquireTime",3,0,T::MicroTime,One,P|E,&[],"",""),
f("holderIdentity",1,0,T::Str,One,P|E,&[],"",""),
f("leaseDurationSeconds",2,0,T::I32,One,P|E,&[],"",""),
f("leaseTransitions",5,0,T::I32,One,P|E,&[],"",""),
f("preferredHolder",7,0,T::Str,One,P|E,&[],"",""),
f("renewTime",4,0,T::MicroTime,One,P|E,&[],"",""),
f("strategy",6,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F161: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("partition",3,0,T::I32,One,E,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
f("volumeID",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F162: &[Field] = &[
f("nodeAffinity",1,0,M(263),One,P|E,&[],"",""),
f("podAffinity",2,0,M(297),One,P|E,&[],"",""),
f("podAntiAffinity",3,0,M(299),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F163: &[Field] = &[
f("localhostProfile",2,0,T::Str,One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F164: &[Field] = &[
f("devicePath",2,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F165: &[Field] = &[
f("preferAvoidPods",1,0,M(329),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F166: &[Field] = &[
f("cachingMode",3,0,T::Str,One,P|E,&[],"","\"ReadWrite\""),
f("diskName",1,0,T::Str,One,R,&[],"",""),
f("diskURI",2,0,T::Str,One,R,&[],"",""),
f("fsType",4,0,T::Str,One,P|E,&[],"","\"ext4\""),
f("kind",6,0,T::Str,One,P|E,&[],"","\"Shared\""),
f("readOnly",5,0,T::Bool,One,P|E,&[],"","false"),
];
#[rustfmt::skip]
static F167: &[Field] = &[
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("secretName",1,0,T::Str,One,R,&[],"",""),
f("secretNamespace",4,0,T::Str,One,P,&[],"",""),
f("shareName",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F168: &[Field] = &[
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("secretName",1,0,T::Str,One,R,&[],"",""),
f("shareName",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F169: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("target",2,0,M(282),One,R,&[],"",""),
];
#[rustfmt::skip]
static F170: &[Field] = &[
f("controllerExpandSecretRef",9,0,M(363),One,P|E,&[],"",""),
f("controllerPublishSecretRef",6,0,M(363),One,P|E,&[],"",""),
f("driver",1,0,T::Str,One,R,&[],"",""),
f("fsType",4,0,T::Str,One,E,&[],"",""),
f("nodeExpandSecretRef",10,0,M(363),One,P|E,&[],"",""),
f("nodePublishSecretRef",8,0,M(363),One,P|E,&[],"",""),
f("nodeStageSecretRef",7,0,M(363),One,P|E,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("volumeAttributes",5,0,T::Str,Map,E,&[],"",""),
f("volumeHandle",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F171: &[Field] = &[
f("driver",1,0,T::Str,One,R,&[],"",""),
f("fsType",3,0,T::Str,One,P|E,&[],"",""),
f("nodePublishSecretRef",5,0,M(252),One,P|E,&[],"",""),
f("readOnly",2,0,T::Bool,One,P|E,&[],"",""),
f("volumeAttributes",4,0,T::Str,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F172: &[Field] = &[
f("add",1,0,T::Str,List,E|LA,&[],"",""),
f("drop",2,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F173: &[Field] = &[
f("monitors",1,0,T::Str,List,R|LA,&[],"",""),
f("path",2,0,T::Str,One,E,&[],"",""),
f("readOnly",6,0,T::Bool,One,E,&[],"",""),
f("secretFile",4,0,T::Str,One,E,&[],"",""),
f("secretRef",5,0,M(363),One,P|E,&[],"",""),
f("user",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F174: &[Field] = &[
f("monitors",1,0,T::Str,List,R|LA,&[],"",""),
f("path",2,0,T::Str,One,E,&[],"",""),
f("readOnly",6,0,T::Bool,One,E,&[],"",""),
f("secretFile",4,0,T::Str,One,E,&[],"",""),
f("secretRef",5,0,M(252),One,P|E,&[],"",""),
f("user",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F175: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("secretRef",4,0,M(363),One,P|E,&[],"",""),
f("volumeID",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F176: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("secretRef",4,0,M(252),One,P|E,&[],"",""),
f("volumeID",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F177: &[Field] = &[
f("timeoutSeconds",1,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F178: &[Field] = &[
f("labelSelector",3,0,M(598),One,P|E,&[],"",""),
f("name",1,0,T::Str,One,P|E,&[],"",""),
f("optional",5,0,T::Bool,One,P|E,&[],"",""),
f("path",4,0,T::Str,One,R,&[],"",""),
f("signerName",2,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F179: &[Field] = &[
f("error",4,0,T::Str,One,E,&[],"",""),
f("message",3,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F180: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("conditions",2,0,M(179),List,E|LM|PM,&["type"],"type",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
];
#[rustfmt::skip]
static F181: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(180),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F182: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("binaryData",3,0,T::Bytes,Map,E,&[],"",""),
f("data",2,0,T::Str,Map,E,&[],"",""),
f("immutable",4,0,T::Bool,One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
];
#[rustfmt::skip]
static F183: &[Field] = &[
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",2,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F184: &[Field] = &[
f("key",2,0,T::Str,One,R,&[],"",""),
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",3,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F185: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(182),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F186: &[Field] = &[
f("kubeletConfigKey",5,0,T::Str,One,R,&[],"",""),
f("name",2,0,T::Str,One,R,&[],"",""),
f("namespace",1,0,T::Str,One,R,&[],"",""),
f("resourceVersion",4,0,T::Str,One,E,&[],"",""),
f("uid",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F187: &[Field] = &[
f("items",2,0,M(242),List,E|LA,&[],"",""),
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",4,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F188: &[Field] = &[
f("defaultMode",3,0,T::I32,One,P|E,&[],"",""),
f("items",2,0,M(242),List,E|LA,&[],"",""),
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",4,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F189: &[Field] = &[
f("args",4,0,T::Str,List,E|LA,&[],"",""),
f("command",3,0,T::Str,List,E|LA,&[],"",""),
f("env",7,0,M(213),List,E|LM|PM,&["name"],"name",""),
f("envFrom",19,0,M(212),List,E|LA,&[],"",""),
f("image",2,0,T::Str,One,E,&[],"",""),
f("imagePullPolicy",14,0,T::Str,One,E,&[],"",""),
f("lifecycle",12,0,M(243),One,P|E,&[],"",""),
f("livenessProbe",10,0,M(331),One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("ports",6,0,M(192),List,E|LM|PM,&["containerPort","protocol"],"containerPort",""),
f("readinessProbe",11,0,M(331),One,P|E,&[],"",""),
f("resizePolicy",23,0,M(193),List,E|LA,&[],"",""),
f("resources",8,0,M(350),One,E,&[],"",""),
f("restartPolicy",24,0,T::Str,One,P|E,&[],"",""),
f("restartPolicyRules",25,0,M(194),List,E|LA,&[],"",""),
f("securityContext",15,0,M(365),One,P|E,&[],"",""),
f("startupProbe",22,0,M(331),One,P|E,&[],"",""),
f("stdin",16,0,T::Bool,One,E,&[],"",""),
f("stdinOnce",17,0,T::Bool,One,E,&[],"",""),
f("terminationMessagePath",13,0,T::Str,One,E,&[],"",""),
f("terminationMessagePolicy",20,0,T::Str,One,E,&[],"",""),
f("tty",18,0,T::Bool,One,E,&[],"",""),
f("volumeDevices",21,0,M(390),List,E|LM|PM,&["devicePath"],"devicePath",""),
f("volumeMounts",9,0,M(391),List,E|LM|PM,&["mountPath"],"mountPath",""),
f("workingDir",5,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F190: &[Field] = &[
f("containerName",1,0,T::Str,One,R,&[],"",""),
f("requestName",3,0,T::Str,One,R,&[],"",""),
f("resourceName",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F191: &[Field] = &[
f("names",1,0,T::Str,List,LA,&[],"",""),
f("sizeBytes",2,0,T::I64,One,E,&[],"",""),
];
#[rustfmt::skip]
static F192: &[Field] = &[
f("containerPort",3,0,T::I32,One,R,&[],"",""),
f("hostIP",5,0,T::Str,One,E,&[],"",""),
f("hostPort",2,0,T::I32,One,E,&[],"",""),
f("name",1,0,T::Str,One,E,&[],"",""),
f("protocol",4,0,T::Str,One,E,&[],"","\"TCP\""),
];
#[rustfmt::skip]
static F193: &[Field] = &[
f("resourceName",1,0,T::Str,One,R,&[],"",""),
f("restartPolicy",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F194: &[Field] = &[
f("action",1,0,T::Str,One,E|R,&[],"",""),
f("exitCodes",2,0,M(195),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F195: &[Field] = &[
f("operator",1,0,T::Str,One,E|R,&[],"",""),
f("values",2,0,T::I32,List,E|LS,&[],"",""),
];
#[rustfmt::skip]
static F196: &[Field] = &[
f("running",2,0,M(197),One,P|E,&[],"",""),
f("terminated",3,0,M(198),One,P|E,&[],"",""),
f("waiting",1,0,M(199),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F197: &[Field] = &[
f("startedAt",1,0,T::Time,One,E,&[],"",""),
];
#[rustfmt::skip]
static F198: &[Field] = &[
f("containerID",7,0,T::Str,One,E,&[],"",""),
f("exitCode",1,0,T::I32,One,R,&[],"",""),
f("finishedAt",6,0,T::Time,One,E,&[],"",""),
f("message",4,0,T::Str,One,E,&[],"",""),
f("reason",3,0,T::Str,One,E,&[],"",""),
f("signal",2,0,T::I32,One,E,&[],"",""),
f("startedAt",5,0,T::Time,One,E,&[],"",""),
];
#[rustfmt::skip]
static F199: &[Field] = &[
f("message",2,0,T::Str,One,E,&[],"",""),
f("reason",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F200: &[Field] = &[
f("allocatedResources",10,0,T::Quantity,Map,E,&[],"",""),
f("allocatedResourcesStatus",14,0,M(351),List,E|LM|PM,&["name"],"name",""),
f("containerID",8,0,T::Str,One,E,&[],"",""),
f("image",6,0,T::Str,One,R,&[],"",""),
f("imageID",7,0,T::Str,One,R,&[],"",""),
f("lastState",3,0,M(196),One,E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("ready",4,0,T::Bool,One,R,&[],"",""),
f("resources",11,0,M(350),One,P|E,&[],"",""),
f("restartCount",5,0,T::I32,One,R,&[],"",""),
f("started",9,0,T::Bool,One,P|E,&[],"",""),
f("state",2,0,M(196),One,E,&[],"",""),
f("stopSignal",15,0,T::Str,One,P|E,&[],"",""),
f("user",13,0,M(201),One,P|E,&[],"",""),
f("volumeMounts",12,0,M(392),List,E|LM|PM,&["mountPath"],"mountPath",""),
];
#[rustfmt::skip]
static F201: &[Field] = &[
f("linux",1,0,M(249),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F202: &[Field] = &[
f("Port",1,0,T::I32,One,R,&[],"",""),
];
#[rustfmt::skip]
static F203: &[Field] = &[
f("items",1,0,M(204),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F204: &[Field] = &[
f("fieldRef",2,0,M(281),One,P|E,&[],"",""),
f("mode",4,0,T::I32,One,P|E,&[],"",""),
f("path",1,0,T::Str,One,R,&[],"",""),
f("resourceFieldRef",3,0,M(344),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F205: &[Field] = &[
f("defaultMode",2,0,T::I32,One,P|E,&[],"",""),
f("items",1,0,M(204),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F206: &[Field] = &[
f("medium",1,0,T::Str,One,E,&[],"",""),
f("sizeLimit",2,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F207: &[Field] = &[
f("hostname",3,0,T::Str,One,E,&[],"",""),
f("ip",1,0,T::Str,One,R,&[],"",""),
f("nodeName",4,0,T::Str,One,P|E,&[],"",""),
f("targetRef",2,0,M(282),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F208: &[Field] = &[
f("appProtocol",4,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,E,&[],"",""),
f("port",2,0,T::I32,One,R,&[],"",""),
f("protocol",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F209: &[Field] = &[
f("addresses",1,0,M(207),List,E|LA,&[],"",""),
f("notReadyAddresses",2,0,M(207),List,E|LA,&[],"",""),
f("ports",3,0,M(208),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F210: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("subsets",2,0,M(209),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F211: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(210),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F212: &[Field] = &[
f("configMapRef",2,0,M(183),One,P|E,&[],"",""),
f("prefix",1,0,T::Str,One,E,&[],"",""),
f("secretRef",3,0,M(359),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F213: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("value",2,0,T::Str,One,E,&[],"",""),
f("valueFrom",3,0,M(214),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F214: &[Field] = &[
f("configMapKeyRef",3,0,M(184),One,P|E,&[],"",""),
f("fieldRef",1,0,M(281),One,P|E,&[],"",""),
f("fileKeyRef",5,0,M(224),One,P|E,&[],"",""),
f("resourceFieldRef",2,0,M(344),One,P|E,&[],"",""),
f("secretKeyRef",4,0,M(360),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F215: &[Field] = &[
f("args",4,1,T::Str,List,E|LA,&[],"",""),
f("command",3,1,T::Str,List,E|LA,&[],"",""),
f("env",7,1,M(213),List,E|LM|PM,&["name"],"name",""),
f("envFrom",19,1,M(212),List,E|LA,&[],"",""),
f("image",2,1,T::Str,One,E,&[],"",""),
f("imagePullPolicy",14,1,T::Str,One,E,&[],"",""),
f("lifecycle",12,1,M(243),One,P|E,&[],"",""),
f("livenessProbe",10,1,M(331),One,P|E,&[],"",""),
f("name",1,1,T::Str,One,R,&[],"",""),
f("ports",6,1,M(192),List,E|LM|PM,&["containerPort","protocol"],"containerPort",""),
f("readinessProbe",11,1,M(331),One,P|E,&[],"",""),
f("resizePolicy",23,1,M(193),List,E|LA,&[],"",""),
f("resources",8,1,M(350),One,E,&[],"",""),
f("restartPolicy",24,1,T::Str,One,P|E,&[],"",""),
f("restartPolicyRules",25,1,M(194),List,E|LA,&[],"",""),
f("securityContext",15,1,M(365),One,P|E,&[],"",""),
f("startupProbe",22,1,M(331),One,P|E,&[],"",""),
f("stdin",16,1,T::Bool,One,E,&[],"",""),
f("stdinOnce",17,1,T::Bool,One,E,&[],"",""),
f("targetContainerName",2,0,T::Str,One,E,&[],"",""),
f("terminationMessagePath",13,1,T::Str,One,E,&[],"",""),
f("terminationMessagePolicy",20,1,T::Str,One,E,&[],"",""),
f("tty",18,1,T::Bool,One,E,&[],"",""),
f("volumeDevices",21,1,M(390),List,E|LM|PM,&["devicePath"],"devicePath",""),
f("volumeMounts",9,1,M(391),List,E|LM|PM,&["mountPath"],"mountPath",""),
f("workingDir",5,1,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F216: &[Field] = &[
f("args",4,0,T::Str,List,E|LA,&[],"",""),
f("command",3,0,T::Str,List,E|LA,&[],"",""),
f("env",7,0,M(213),List,E|LM|PM,&["name"],"name",""),
f("envFrom",19,0,M(212),List,E|LA,&[],"",""),
f("image",2,0,T::Str,One,E,&[],"",""),
f("imagePullPolicy",14,0,T::Str,One,E,&[],"",""),
f("lifecycle",12,0,M(243),One,P|E,&[],"",""),
f("livenessProbe",10,0,M(331),One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("ports",6,0,M(192),List,E|LM|PM,&["containerPort","protocol"],"containerPort",""),
f("readinessProbe",11,0,M(331),One,P|E,&[],"",""),
f("resizePolicy",23,0,M(193),List,E|LA,&[],"",""),
f("resources",8,0,M(350),One,E,&[],"",""),
f("restartPolicy",24,0,T::Str,One,P|E,&[],"",""),
f("restartPolicyRules",25,0,M(194),List,E|LA,&[],"",""),
f("securityContext",15,0,M(365),One,P|E,&[],"",""),
f("startupProbe",22,0,M(331),One,P|E,&[],"",""),
f("stdin",16,0,T::Bool,One,E,&[],"",""),
f("stdinOnce",17,0,T::Bool,One,E,&[],"",""),
f("terminationMessagePath",13,0,T::Str,One,E,&[],"",""),
f("terminationMessagePolicy",20,0,T::Str,One,E,&[],"",""),
f("tty",18,0,T::Bool,One,E,&[],"",""),
f("volumeDevices",21,0,M(390),List,E|LM|PM,&["devicePath"],"devicePath",""),
f("volumeMounts",9,0,M(391),List,E|LM|PM,&["mountPath"],"mountPath",""),
f("workingDir",5,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F217: &[Field] = &[
f("volumeClaimTemplate",1,0,M(289),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F218: &[Field] = &[
f("action",12,0,T::Str,One,E,&[],"",""),
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("count",8,0,T::I32,One,E,&[],"",""),
f("eventTime",10,0,T::MicroTime,One,E,&[],"",""),
f("firstTimestamp",6,0,T::Time,One,E,&[],"",""),
f("involvedObject",2,0,M(282),One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("lastTimestamp",7,0,T::Time,One,E,&[],"",""),
f("message",4,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,R,&[],"",""),
f("reason",3,0,T::Str,One,E,&[],"",""),
f("related",13,0,M(282),One,P|E,&[],"",""),
f("reportingComponent",14,0,T::Str,One,0,&[],"",""),
f("reportingInstance",15,0,T::Str,One,0,&[],"",""),
f("series",11,0,M(220),One,P|E,&[],"",""),
f("source",5,0,M(221),One,E,&[],"",""),
f("type",9,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F219: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(218),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F220: &[Field] = &[
f("count",1,0,T::I32,One,E,&[],"",""),
f("lastObservedTime",2,0,T::MicroTime,One,E,&[],"",""),
];
#[rustfmt::skip]
static F221: &[Field] = &[
f("component",1,0,T::Str,One,E,&[],"",""),
f("host",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F222: &[Field] = &[
f("command",1,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F223: &[Field] = &[
f("fsType",3,0,T::Str,One,E,&[],"",""),
f("lun",2,0,T::I32,One,P|E,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
f("targetWWNs",1,0,T::Str,List,E|LA,&[],"",""),
f("wwids",5,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F224: &[Field] = &[
f("key",3,0,T::Str,One,R,&[],"",""),
f("optional",4,0,T::Bool,One,P|E,&[],"","false"),
f("path",2,0,T::Str,One,R,&[],"",""),
f("volumeName",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F225: &[Field] = &[
f("driver",1,0,T::Str,One,R,&[],"",""),
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("options",5,0,T::Str,Map,E,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
f("secretRef",3,0,M(363),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F226: &[Field] = &[
f("driver",1,0,T::Str,One,R,&[],"",""),
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("options",5,0,T::Str,Map,E,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
f("secretRef",3,0,M(252),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F227: &[Field] = &[
f("datasetName",1,0,T::Str,One,E,&[],"",""),
f("datasetUUID",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F228: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("partition",3,0,T::I32,One,E,&[],"",""),
f("pdName",1,0,T::Str,One,R,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F229: &[Field] = &[
f("port",1,0,T::I32,One,R,&[],"",""),
f("service",2,0,T::Str,One,P,&[],"","\"\""),
];
#[rustfmt::skip]
static F230: &[Field] = &[
f("directory",3,0,T::Str,One,E,&[],"",""),
f("repository",1,0,T::Str,One,R,&[],"",""),
f("revision",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F231: &[Field] = &[
f("endpoints",1,0,T::Str,One,R,&[],"",""),
f("endpointsNamespace",4,0,T::Str,One,P|E,&[],"",""),
f("path",2,0,T::Str,One,R,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F232: &[Field] = &[
f("endpoints",1,0,T::Str,One,R,&[],"",""),
f("path",2,0,T::Str,One,R,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F233: &[Field] = &[
f("host",3,0,T::Str,One,E,&[],"",""),
f("httpHeaders",5,0,M(234),List,E|LA,&[],"",""),
f("path",1,0,T::Str,One,E,&[],"",""),
f("port",2,0,T::IntOrString,One,R,&[],"",""),
f("scheme",4,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F234: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("value",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F235: &[Field] = &[
f("hostnames",2,0,T::Str,List,E|LA,&[],"",""),
f("ip",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F236: &[Field] = &[
f("ip",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F237: &[Field] = &[
f("path",1,0,T::Str,One,R,&[],"",""),
f("type",2,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F238: &[Field] = &[
f("chapAuthDiscovery",8,0,T::Bool,One,E,&[],"",""),
f("chapAuthSession",11,0,T::Bool,One,E,&[],"",""),
f("fsType",5,0,T::Str,One,E,&[],"",""),
f("initiatorName",12,0,T::Str,One,P|E,&[],"",""),
f("iqn",2,0,T::Str,One,R,&[],"",""),
f("iscsiInterface",4,0,T::Str,One,E,&[],"","\"default\""),
f("lun",3,0,T::I32,One,R,&[],"",""),
f("portals",7,0,T::Str,List,E|LA,&[],"",""),
f("readOnly",6,0,T::Bool,One,E,&[],"",""),
f("secretRef",10,0,M(363),One,P|E,&[],"",""),
f("targetPortal",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F239: &[Field] = &[
f("chapAuthDiscovery",8,0,T::Bool,One,E,&[],"",""),
f("chapAuthSession",11,0,T::Bool,One,E,&[],"",""),
f("fsType",5,0,T::Str,One,E,&[],"",""),
f("initiatorName",12,0,T::Str,One,P|E,&[],"",""),
f("iqn",2,0,T::Str,One,R,&[],"",""),
f("iscsiInterface",4,0,T::Str,One,E,&[],"","\"default\""),
f("lun",3,0,T::I32,One,R,&[],"",""),
f("portals",7,0,T::Str,List,E|LA,&[],"",""),
f("readOnly",6,0,T::Bool,One,E,&[],"",""),
f("secretRef",10,0,M(252),One,P|E,&[],"",""),
f("targetPortal",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F240: &[Field] = &[
f("pullPolicy",2,0,T::Str,One,E,&[],"",""),
f("reference",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F241: &[Field] = &[
f("imageRef",1,0,T::Str,One,E|R,&[],"",""),
];
#[rustfmt::skip]
static F242: &[Field] = &[
f("key",1,0,T::Str,One,R,&[],"",""),
f("mode",3,0,T::I32,One,P|E,&[],"",""),
f("path",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F243: &[Field] = &[
f("postStart",1,0,M(244),One,P|E,&[],"",""),
f("preStop",2,0,M(244),One,P|E,&[],"",""),
f("stopSignal",3,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F244: &[Field] = &[
f("exec",1,0,M(222),One,P|E,&[],"",""),
f("httpGet",2,0,M(233),One,P|E,&[],"",""),
f("sleep",4,0,M(377),One,P|E,&[],"",""),
f("tcpSocket",3,0,M(381),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F245: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(248),One,E,&[],"",""),
];
#[rustfmt::skip]
static F246: &[Field] = &[
f("default",4,0,T::Quantity,Map,E,&[],"",""),
f("defaultRequest",5,0,T::Quantity,Map,E,&[],"",""),
f("max",2,0,T::Quantity,Map,E,&[],"",""),
f("maxLimitRequestRatio",6,0,T::Quantity,Map,E,&[],"",""),
f("min",3,0,T::Quantity,Map,E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F247: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(245),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F248: &[Field] = &[
f("limits",1,0,M(246),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F249: &[Field] = &[
f("gid",2,0,T::I64,One,R,&[],"",""),
f("supplementalGroups",3,0,T::I64,List,E|LA,&[],"",""),
f("uid",1,0,T::I64,One,R,&[],"",""),
];
#[rustfmt::skip]
static F250: &[Field] = &[
f("hostname",2,0,T::Str,One,E,&[],"",""),
f("ip",1,0,T::Str,One,E,&[],"",""),
f("ipMode",3,0,T::Str,One,P|E,&[],"",""),
f("ports",4,0,M(326),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F251: &[Field] = &[
f("ingress",1,0,M(250),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F252: &[Field] = &[
f("name",1,0,T::Str,One,E,&[],"","\"\""),
];
#[rustfmt::skip]
static F253: &[Field] = &[
f("fsType",2,0,T::Str,One,P|E,&[],"",""),
f("path",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F254: &[Field] = &[
f("status",2,0,T::Str,One,R,&[],"",""),
f("targetVolumeAttributesClassName",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F255: &[Field] = &[
f("path",2,0,T::Str,One,R,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("server",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F256: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(259),One,E,&[],"",""),
f("status",3,0,M(260),One,E,&[],"",""),
];
#[rustfmt::skip]
static F257: &[Field] = &[
f("lastTransitionTime",4,0,T::Time,One,E,&[],"",""),
f("message",6,0,T::Str,One,E,&[],"",""),
f("reason",5,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F258: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(256),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F259: &[Field] = &[
f("finalizers",1,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F260: &[Field] = &[
f("conditions",2,0,M(257),List,E|LM|PM,&["type"],"type",""),
f("phase",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F261: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(277),One,E,&[],"",""),
f("status",3,0,M(278),One,E,&[],"",""),
];
#[rustfmt::skip]
static F262: &[Field] = &[
f("address",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F263: &[Field] = &[
f("preferredDuringSchedulingIgnoredDuringExecution",2,0,M(330),List,E|LA,&[],"",""),
f("requiredDuringSchedulingIgnoredDuringExecution",1,0,M(274),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F264: &[Field] = &[
f("containers",2,0,T::Str,List,E|LS,&[],"",""),
f("resourceClaimName",1,0,T::Str,One,R,&[],"",""),
f("resources",3,0,T::Quantity,Map,R,&[],"",""),
];
#[rustfmt::skip]
static F265: &[Field] = &[
f("lastHeartbeatTime",3,0,T::Time,One,E,&[],"",""),
f("lastTransitionTime",4,0,T::Time,One,E,&[],"",""),
f("message",6,0,T::Str,One,E,&[],"",""),
f("reason",5,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F266: &[Field] = &[
f("configMap",2,0,M(186),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F267: &[Field] = &[
f("active",2,0,M(266),One,P|E,&[],"",""),
f("assigned",1,0,M(266),One,P|E,&[],"",""),
f("error",4,0,T::Str,One,E,&[],"",""),
f("lastKnownGood",3,0,M(266),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F268: &[Field] = &[
f("kubeletEndpoint",1,0,M(202),One,E,&[],"",""),
];
#[rustfmt::skip]
static F269: &[Field] = &[
f("supplementalGroupsPolicy",1,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F270: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(261),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F271: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("path",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F272: &[Field] = &[
f("features",2,0,M(273),One,P|E,&[],"",""),
f("name",1,0,T::Str,One,0,&[],"",""),
];
#[rustfmt::skip]
static F273: &[Field] = &[
f("recursiveReadOnlyMounts",1,0,T::Bool,One,P|E,&[],"",""),
f("userNamespaces",2,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F274: &[Field] = &[
f("nodeSelectorTerms",1,0,M(276),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F275: &[Field] = &[
f("key",1,0,T::Str,One,R,&[],"",""),
f("operator",2,0,T::Str,One,R,&[],"",""),
f("values",3,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F276: &[Field] = &[
f("matchExpressions",1,0,M(275),List,E|LA,&[],"",""),
f("matchFields",2,0,M(275),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F277: &[Field] = &[
f("configSource",6,0,M(266),One,P|E,&[],"",""),
f("externalID",2,0,T::Str,One,E,&[],"",""),
f("podCIDR",1,0,T::Str,One,E,&[],"",""),
f("podCIDRs",7,0,T::Str,List,E|LS|PM,&[],"",""),
f("providerID",3,0,T::Str,One,E,&[],"",""),
f("taints",5,0,M(382),List,E|LA,&[],"",""),
f("unschedulable",4,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F278: &[Field] = &[
f("addresses",5,0,M(262),List,E|LM|PM,&["type"],"type",""),
f("allocatable",2,0,T::Quantity,Map,E,&[],"",""),
f("capacity",1,0,T::Quantity,Map,E,&[],"",""),
f("conditions",4,0,M(265),List,E|LM|PM,&["type"],"type",""),
f("config",11,0,M(267),One,P|E,&[],"",""),
f("daemonEndpoints",6,0,M(268),One,E,&[],"",""),
f("declaredFeatures",14,0,T::Str,List,E|LA,&[],"",""),
f("features",13,0,M(269),One,P|E,&[],"",""),
f("images",8,0,M(191),List,E|LA,&[],"",""),
f("nodeInfo",7,0,M(280),One,E,&[],"",""),
f("phase",3,0,T::Str,One,E,&[],"",""),
f("runtimeHandlers",12,0,M(272),List,E|LA,&[],"",""),
f("volumesAttached",10,0,M(164),List,E|LA,&[],"",""),
f("volumesInUse",9,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F279: &[Field] = &[
f("capacity",1,0,T::I64,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F280: &[Field] = &[
f("architecture",10,0,T::Str,One,R,&[],"",""),
f("bootID",3,0,T::Str,One,R,&[],"",""),
f("containerRuntimeVersion",6,0,T::Str,One,R,&[],"",""),
f("kernelVersion",4,0,T::Str,One,R,&[],"",""),
f("kubeProxyVersion",8,0,T::Str,One,R,&[],"",""),
f("kubeletVersion",7,0,T::Str,One,R,&[],"",""),
f("machineID",1,0,T::Str,One,R,&[],"",""),
f("operatingSystem",9,0,T::Str,One,R,&[],"",""),
f("osImage",5,0,T::Str,One,R,&[],"",""),
f("swap",11,0,M(279),One,P|E,&[],"",""),
f("systemUUID",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F281: &[Field] = &[
f("apiVersion",1,0,T::Str,One,E,&[],"",""),
f("fieldPath",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F282: &[Field] = &[
f("apiVersion",5,0,T::Str,One,E,&[],"",""),
f("fieldPath",7,0,T::Str,One,E,&[],"",""),
f("kind",1,0,T::Str,One,E,&[],"",""),
f("name",3,0,T::Str,One,E,&[],"",""),
f("namespace",2,0,T::Str,One,E,&[],"",""),
f("resourceVersion",6,0,T::Str,One,E,&[],"",""),
f("uid",4,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F283: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(293),One,E,&[],"",""),
f("status",3,0,M(294),One,E,&[],"",""),
];
#[rustfmt::skip]
static F284: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(287),One,E,&[],"",""),
f("status",3,0,M(288),One,E,&[],"",""),
];
#[rustfmt::skip]
static F285: &[Field] = &[
f("lastProbeTime",3,0,T::Time,One,E,&[],"",""),
f("lastTransitionTime",4,0,T::Time,One,E,&[],"",""),
f("message",6,0,T::Str,One,E,&[],"",""),
f("reason",5,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F286: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(284),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F287: &[Field] = &[
f("accessModes",1,0,T::Str,List,E|LA,&[],"",""),
f("dataSource",7,0,M(387),One,P|E,&[],"",""),
f("dataSourceRef",8,0,M(388),One,P|E,&[],"",""),
f("resources",2,0,M(395),One,E,&[],"",""),
f("selector",4,0,M(598),One,P|E,&[],"",""),
f("storageClassName",5,0,T::Str,One,P|E,&[],"",""),
f("volumeAttributesClassName",9,0,T::Str,One,P|E,&[],"",""),
f("volumeMode",6,0,T::Str,One,P|E,&[],"",""),
f("volumeName",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F288: &[Field] = &[
f("accessModes",2,0,T::Str,List,E|LA,&[],"",""),
f("allocatedResourceStatuses",7,0,T::Str,Map,E,&[],"",""),
f("allocatedResources",5,0,T::Quantity,Map,E,&[],"",""),
f("capacity",3,0,T::Quantity,Map,E,&[],"",""),
f("conditions",4,0,M(285),List,E|LM|PM,&["type"],"type",""),
f("currentVolumeAttributesClassName",8,0,T::Str,One,P|E,&[],"",""),
f("modifyVolumeStatus",9,0,M(254),One,P|E,&[],"",""),
f("phase",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F289: &[Field] = &[
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(287),One,R,&[],"",""),
];
#[rustfmt::skip]
static F290: &[Field] = &[
f("claimName",1,0,T::Str,One,R,&[],"",""),
f("readOnly",2,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F291: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(283),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F292: &[Field] = &[
f("awsElasticBlockStore",2,0,M(161),One,P|E,&[],"",""),
f("azureDisk",16,0,M(166),One,P|E,&[],"",""),
f("azureFile",13,0,M(167),One,P|E,&[],"",""),
f("cephfs",9,0,M(173),One,P|E,&[],"",""),
f("cinder",8,0,M(175),One,P|E,&[],"",""),
f("csi",22,0,M(170),One,P|E,&[],"",""),
f("fc",10,0,M(223),One,P|E,&[],"",""),
f("flexVolume",12,0,M(225),One,P|E,&[],"",""),
f("flocker",11,0,M(227),One,P|E,&[],"",""),
f("gcePersistentDisk",1,0,M(228),One,P|E,&[],"",""),
f("glusterfs",4,0,M(231),One,P|E,&[],"",""),
f("hostPath",3,0,M(237),One,P|E,&[],"",""),
f("iscsi",7,0,M(238),One,P|E,&[],"",""),
f("local",20,0,M(253),One,P|E,&[],"",""),
f("nfs",5,0,M(255),One,P|E,&[],"",""),
f("photonPersistentDisk",17,0,M(295),One,P|E,&[],"",""),
f("portworxVolume",18,0,M(327),One,P|E,&[],"",""),
f("quobyte",15,0,M(334),One,P|E,&[],"",""),
f("rbd",6,0,M(335),One,P|E,&[],"",""),
f("scaleIO",19,0,M(353),One,P|E,&[],"",""),
f("storageos",21,0,M(378),One,P|E,&[],"",""),
f("vsphereVolume",14,0,M(398),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F293: &[Field] = &[
f("accessModes",3,0,T::Str,List,E|LA,&[],"",""),
f("awsElasticBlockStore",2,2,M(161),One,P|E,&[],"",""),
f("azureDisk",16,2,M(166),One,P|E,&[],"",""),
f("azureFile",13,2,M(167),One,P|E,&[],"",""),
f("capacity",1,0,T::Quantity,Map,E,&[],"",""),
f("cephfs",9,2,M(173),One,P|E,&[],"",""),
f("cinder",8,2,M(175),One,P|E,&[],"",""),
f("claimRef",4,0,M(282),One,P|E,&[],"",""),
f("csi",22,2,M(170),One,P|E,&[],"",""),
f("fc",10,2,M(223),One,P|E,&[],"",""),
f("flexVolume",12,2,M(225),One,P|E,&[],"",""),
f("flocker",11,2,M(227),One,P|E,&[],"",""),
f("gcePersistentDisk",1,2,M(228),One,P|E,&[],"",""),
f("glusterfs",4,2,M(231),One,P|E,&[],"",""),
f("hostPath",3,2,M(237),One,P|E,&[],"",""),
f("iscsi",7,2,M(238),One,P|E,&[],"",""),
f("local",20,2,M(253),One,P|E,&[],"",""),
f("mountOptions",7,0,T::Str,List,E|LA,&[],"",""),
f("nfs",5,2,M(255),One,P|E,&[],"",""),
f("nodeAffinity",9,0,M(393),One,P|E,&[],"",""),
f("persistentVolumeReclaimPolicy",5,0,T::Str,One,E,&[],"",""),
f("photonPersistentDisk",17,2,M(295),One,P|E,&[],"",""),
f("portworxVolume",18,2,M(327),One,P|E,&[],"",""),
f("quobyte",15,2,M(334),One,P|E,&[],"",""),
f("rbd",6,2,M(335),One,P|E,&[],"",""),
f("scaleIO",19,2,M(353),One,P|E,&[],"",""),
f("storageClassName",6,0,T::Str,One,E,&[],"",""),
f("storageos",21,2,M(378),One,P|E,&[],"",""),
f("volumeAttributesClassName",10,0,T::Str,One,P|E,&[],"",""),
f("volumeMode",8,0,T::Str,One,P|E,&[],"",""),
f("vsphereVolume",14,2,M(398),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F294: &[Field] = &[
f("lastPhaseTransitionTime",4,0,T::Time,One,P|E,&[],"",""),
f("message",2,0,T::Str,One,E,&[],"",""),
f("phase",1,0,T::Str,One,E,&[],"",""),
f("reason",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F295: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("pdID",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F296: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(320),One,E,&[],"",""),
f("status",3,0,M(321),One,E,&[],"",""),
];
#[rustfmt::skip]
static F297: &[Field] = &[
f("preferredDuringSchedulingIgnoredDuringExecution",2,0,M(399),List,E|LA,&[],"",""),
f("requiredDuringSchedulingIgnoredDuringExecution",1,0,M(298),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F298: &[Field] = &[
f("labelSelector",1,0,M(598),One,P|E,&[],"",""),
f("matchLabelKeys",5,0,T::Str,List,E|LA,&[],"",""),
f("mismatchLabelKeys",6,0,T::Str,List,E|LA,&[],"",""),
f("namespaceSelector",4,0,M(598),One,P|E,&[],"",""),
f("namespaces",2,0,T::Str,List,E|LA,&[],"",""),
f("topologyKey",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F299: &[Field] = &[
f("preferredDuringSchedulingIgnoredDuringExecution",2,0,M(399),List,E|LA,&[],"",""),
f("requiredDuringSchedulingIgnoredDuringExecution",1,0,M(298),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F300: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("container",5,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("stderr",3,0,T::Bool,One,E,&[],"",""),
f("stdin",1,0,T::Bool,One,E,&[],"",""),
f("stdout",2,0,T::Bool,One,E,&[],"",""),
f("tty",4,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F301: &[Field] = &[
f("certificateChainPath",6,0,T::Str,One,E,&[],"",""),
f("credentialBundlePath",4,0,T::Str,One,E,&[],"",""),
f("keyPath",5,0,T::Str,One,E,&[],"",""),
f("keyType",2,0,T::Str,One,E|R,&[],"",""),
f("maxExpirationSeconds",3,0,T::I32,One,P|E,&[],"",""),
f("signerName",1,0,T::Str,One,E|R,&[],"",""),
f("userAnnotations",7,0,T::Str,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F302: &[Field] = &[
f("lastProbeTime",3,0,T::Time,One,E,&[],"",""),
f("lastTransitionTime",4,0,T::Time,One,E,&[],"",""),
f("message",6,0,T::Str,One,E,&[],"",""),
f("observedGeneration",7,0,T::I64,One,E,&[],"",""),
f("reason",5,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F303: &[Field] = &[
f("nameservers",1,0,T::Str,List,E|LA,&[],"",""),
f("options",3,0,M(304),List,E|LA,&[],"",""),
f("searches",2,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F304: &[Field] = &[
f("name",1,0,T::Str,One,E,&[],"",""),
f("value",2,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F305: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("command",6,0,T::Str,List,R|LA,&[],"",""),
f("container",5,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("stderr",3,0,T::Bool,One,E,&[],"",""),
f("stdin",1,0,T::Bool,One,E,&[],"",""),
f("stdout",2,0,T::Bool,One,E,&[],"",""),
f("tty",4,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F306: &[Field] = &[
f("requestMappings",1,0,M(190),List,R|LA,&[],"",""),
f("resourceClaimName",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F307: &[Field] = &[
f("ip",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F308: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(296),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F309: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("container",1,0,T::Str,One,E,&[],"",""),
f("follow",2,0,T::Bool,One,E,&[],"",""),
f("insecureSkipTLSVerifyBackend",9,0,T::Bool,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("limitBytes",8,0,T::I64,One,P|E,&[],"",""),
f("previous",3,0,T::Bool,One,E,&[],"",""),
f("sinceSeconds",4,0,T::I64,One,P|E,&[],"",""),
f("sinceTime",5,0,T::Time,One,P|E,&[],"",""),
f("stream",10,0,T::Str,One,P|E,&[],"",""),
f("tailLines",7,0,T::I64,One,P|E,&[],"",""),
f("timestamps",6,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F310: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F311: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("ports",1,0,T::I32,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F312: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("path",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F313: &[Field] = &[
f("conditionType",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F314: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("resourceClaimName",3,0,T::Str,One,P|E,&[],"",""),
f("resourceClaimTemplateName",4,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F315: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("resourceClaimName",2,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F316: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F317: &[Field] = &[
f("podGroupName",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F318: &[Field] = &[
f("appArmorProfile",11,0,M(163),One,P|E,&[],"",""),
f("fsGroup",5,0,T::I64,One,P|E,&[],"",""),
f("fsGroupChangePolicy",9,0,T::Str,One,P|E,&[],"",""),
f("runAsGroup",6,0,T::I64,One,P|E,&[],"",""),
f("runAsNonRoot",3,0,T::Bool,One,P|E,&[],"",""),
f("runAsUser",2,0,T::I64,One,P|E,&[],"",""),
f("seLinuxChangePolicy",13,0,T::Str,One,P|E,&[],"",""),
f("seLinuxOptions",1,0,M(352),One,P|E,&[],"",""),
f("seccompProfile",10,0,M(357),One,P|E,&[],"",""),
f("supplementalGroups",4,0,T::I64,List,E|LA,&[],"",""),
f("supplementalGroupsPolicy",12,0,T::Str,One,P|E,&[],"",""),
f("sysctls",7,0,M(380),List,E|LA,&[],"",""),
f("windowsOptions",8,0,M(400),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F319: &[Field] = &[
f("podController",1,0,M(605),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F320: &[Field] = &[
f("activeDeadlineSeconds",5,0,T::I64,One,P|E,&[],"",""),
f("affinity",18,0,M(162),One,P|E,&[],"",""),
f("automountServiceAccountToken",21,0,T::Bool,One,P|E,&[],"",""),
f("containers",2,0,M(189),List,R|LM|PM,&["name"],"name",""),
f("dnsConfig",26,0,M(303),One,P|E,&[],"",""),
f("dnsPolicy",6,0,T::Str,One,E,&[],"",""),
f("enableServiceLinks",30,0,T::Bool,One,P|E,&[],"",""),
f("ephemeralContainers",34,0,M(215),List,E|LM|PM,&["name"],"name",""),
f("hostAliases",23,0,M(235),List,E|LM|PM,&["ip"],"ip",""),
f("hostIPC",13,0,T::Bool,One,E,&[],"",""),
f("hostNetwork",11,0,T::Bool,One,E,&[],"",""),
f("hostPID",12,0,T::Bool,One,E,&[],"",""),
f("hostUsers",37,0,T::Bool,One,P|E,&[],"",""),
f("hostname",16,0,T::Str,One,E,&[],"",""),
f("hostnameOverride",41,0,T::Str,One,P|E,&[],"",""),
f("imagePullSecrets",15,0,M(252),List,E|LM|PM,&["name"],"name",""),
f("initContainers",20,0,M(189),List,E|LM|PM,&["name"],"name",""),
f("nodeName",10,0,T::Str,One,E,&[],"",""),
f("nodeSelector",7,0,T::Str,Map,E|A,&[],"",""),
f("os",36,0,M(310),One,P|E,&[],"",""),
f("overhead",32,0,T::Quantity,Map,E,&[],"",""),
f("preemptionPolicy",31,0,T::Str,One,P|E,&[],"",""),
f("priority",25,0,T::I32,One,P|E,&[],"",""),
f("priorityClassName",24,0,T::Str,One,E,&[],"",""),
f("readinessGates",28,0,M(313),List,E|LA,&[],"",""),
f("resourceClaims",39,0,M(314),List,E|LM|PM|PR,&["name"],"name",""),
f("resources",40,0,M(350),One,P|E,&[],"",""),
f("restartPolicy",3,0,T::Str,One,E,&[],"",""),
f("runtimeClassName",29,0,T::Str,One,P|E,&[],"",""),
f("schedulerName",19,0,T::Str,One,E,&[],"",""),
f("schedulingGates",38,0,M(316),List,E|LM|PM,&["name"],"name",""),
f("schedulingGroup",43,0,M(317),One,P|E,&[],"",""),
f("securityContext",14,0,M(318),One,P|E,&[],"",""),
f("serviceAccount",9,0,T::Str,One,E,&[],"",""),
f("serviceAccountName",8,0,T::Str,One,E,&[],"",""),
f("setHostnameAsFQDN",35,0,T::Bool,One,P|E,&[],"",""),
f("shareProcessNamespace",27,0,T::Bool,One,P|E,&[],"",""),
f("subdomain",17,0,T::Str,One,E,&[],"",""),
f("terminationGracePeriodSeconds",4,0,T::I64,One,P|E,&[],"",""),
f("tolerations",22,0,M(383),List,E|LA,&[],"",""),
f("topologySpreadConstraints",33,0,M(386),List,E|LM|PM,&["topologyKey","whenUnsatisfiable"],"topologyKey",""),
f("volumes",1,0,M(389),List,E|LM|PM|PR,&["name"],"name",""),
];
#[rustfmt::skip]
static F321: &[Field] = &[
f("allocatedResources",19,0,T::Quantity,Map,E,&[],"",""),
f("conditions",2,0,M(302),List,E|LM|PM,&["type"],"type",""),
f("containerStatuses",8,0,M(200),List,E|LA,&[],"",""),
f("ephemeralContainerStatuses",13,0,M(200),List,E|LA,&[],"",""),
f("extendedResourceClaimStatus",18,0,M(306),One,P|E,&[],"",""),
f("hostIP",5,0,T::Str,One,E,&[],"",""),
f("hostIPs",16,0,M(236),List,E|LA|PM,&[],"ip",""),
f("initContainerStatuses",10,0,M(200),List,E|LA,&[],"",""),
f("message",3,0,T::Str,One,E,&[],"",""),
f("nodeAllocatableResourceClaimStatuses",21,0,M(264),List,E|LA,&[],"",""),
f("nominatedNodeName",11,0,T::Str,One,E,&[],"",""),
f("observedGeneration",17,0,T::I64,One,E,&[],"",""),
f("phase",1,0,T::Str,One,E,&[],"",""),
f("podIP",6,0,T::Str,One,E,&[],"",""),
f("podIPs",12,0,M(307),List,E|LM|PM,&["ip"],"ip",""),
f("qosClass",9,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("resize",14,0,T::Str,One,E,&[],"",""),
f("resourceClaimStatuses",15,0,M(315),List,E|LM|PM|PR,&["name"],"name",""),
f("resources",20,0,M(350),One,P|E,&[],"",""),
f("startTime",7,0,T::Time,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F322: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("status",2,0,M(321),One,E,&[],"",""),
];
#[rustfmt::skip]
static F323: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("template",2,0,M(325),One,E,&[],"",""),
];
#[rustfmt::skip]
static F324: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(323),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F325: &[Field] = &[
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(320),One,E,&[],"",""),
];
#[rustfmt::skip]
static F326: &[Field] = &[
f("error",3,0,T::Str,One,P|E,&[],"",""),
f("port",1,0,T::I32,One,R,&[],"",""),
f("protocol",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F327: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("volumeID",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F328: &[Field] = &[
f("uid",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F329: &[Field] = &[
f("evictionTime",2,0,T::Time,One,E,&[],"",""),
f("message",4,0,T::Str,One,E,&[],"",""),
f("podSignature",1,0,M(319),One,R,&[],"",""),
f("reason",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F330: &[Field] = &[
f("preference",2,0,M(276),One,R,&[],"",""),
f("weight",1,0,T::I32,One,R,&[],"",""),
];
#[rustfmt::skip]
static F331: &[Field] = &[
f("exec",1,1,M(222),One,P|E,&[],"",""),
f("failureThreshold",6,0,T::I32,One,E,&[],"",""),
f("grpc",4,1,M(229),One,P|E,&[],"",""),
f("httpGet",2,1,M(233),One,P|E,&[],"",""),
f("initialDelaySeconds",2,0,T::I32,One,E,&[],"",""),
f("periodSeconds",4,0,T::I32,One,E,&[],"",""),
f("successThreshold",5,0,T::I32,One,E,&[],"",""),
f("tcpSocket",3,1,M(381),One,P|E,&[],"",""),
f("terminationGracePeriodSeconds",7,0,T::I64,One,P|E,&[],"",""),
f("timeoutSeconds",3,0,T::I32,One,E,&[],"",""),
];
#[rustfmt::skip]
static F332: &[Field] = &[
f("exec",1,0,M(222),One,P|E,&[],"",""),
f("grpc",4,0,M(229),One,P|E,&[],"",""),
f("httpGet",2,0,M(233),One,P|E,&[],"",""),
f("tcpSocket",3,0,M(381),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F333: &[Field] = &[
f("defaultMode",2,0,T::I32,One,P|E,&[],"",""),
f("sources",1,0,M(394),List,LA,&[],"",""),
];
#[rustfmt::skip]
static F334: &[Field] = &[
f("group",5,0,T::Str,One,E,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("registry",1,0,T::Str,One,R,&[],"",""),
f("tenant",6,0,T::Str,One,E,&[],"",""),
f("user",4,0,T::Str,One,E,&[],"",""),
f("volume",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F335: &[Field] = &[
f("fsType",3,0,T::Str,One,E,&[],"",""),
f("image",2,0,T::Str,One,R,&[],"",""),
f("keyring",6,0,T::Str,One,E,&[],"","\"/etc/ceph/keyring\""),
f("monitors",1,0,T::Str,List,R|LA,&[],"",""),
f("pool",4,0,T::Str,One,E,&[],"","\"rbd\""),
f("readOnly",8,0,T::Bool,One,E,&[],"",""),
f("secretRef",7,0,M(363),One,P|E,&[],"",""),
f("user",5,0,T::Str,One,E,&[],"","\"admin\""),
];
#[rustfmt::skip]
static F336: &[Field] = &[
f("fsType",3,0,T::Str,One,E,&[],"",""),
f("image",2,0,T::Str,One,R,&[],"",""),
f("keyring",6,0,T::Str,One,E,&[],"","\"/etc/ceph/keyring\""),
f("monitors",1,0,T::Str,List,R|LA,&[],"",""),
f("pool",4,0,T::Str,One,E,&[],"","\"rbd\""),
f("readOnly",8,0,T::Bool,One,E,&[],"",""),
f("secretRef",7,0,M(252),One,P|E,&[],"",""),
f("user",5,0,T::Str,One,E,&[],"","\"admin\""),
];
#[rustfmt::skip]
static F337: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("data",3,0,T::Bytes,One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("range",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F338: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(341),One,E,&[],"",""),
f("status",3,0,M(342),One,E,&[],"",""),
];
#[rustfmt::skip]
static F339: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F340: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(338),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F341: &[Field] = &[
f("minReadySeconds",4,0,T::I32,One,E,&[],"","0"),
f("replicas",1,0,T::I32,One,P|E,&[],"","1"),
f("selector",2,0,T::Str,Map,E|A,&[],"",""),
f("template",3,0,M(325),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F342: &[Field] = &[
f("availableReplicas",5,0,T::I32,One,E,&[],"",""),
f("conditions",6,0,M(339),List,E|LM|PM,&["type"],"type",""),
f("fullyLabeledReplicas",2,0,T::I32,One,E,&[],"",""),
f("observedGeneration",3,0,T::I64,One,E,&[],"",""),
f("readyReplicas",4,0,T::I32,One,E,&[],"",""),
f("replicas",1,0,T::I32,One,R,&[],"",""),
];
#[rustfmt::skip]
static F343: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("request",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F344: &[Field] = &[
f("containerName",1,0,T::Str,One,E,&[],"",""),
f("divisor",3,0,T::Quantity,One,E,&[],"",""),
f("resource",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F345: &[Field] = &[
f("health",2,0,T::Str,One,E,&[],"",""),
f("message",6,0,T::Str,One,P|E,&[],"",""),
f("resourceID",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F346: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(348),One,E,&[],"",""),
f("status",3,0,M(349),One,E,&[],"",""),
];
#[rustfmt::skip]
static F347: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(346),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F348: &[Field] = &[
f("hard",1,0,T::Quantity,Map,E,&[],"",""),
f("scopeSelector",3,0,M(355),One,P|E,&[],"",""),
f("scopes",2,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F349: &[Field] = &[
f("hard",1,0,T::Quantity,Map,E,&[],"",""),
f("used",2,0,T::Quantity,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F350: &[Field] = &[
f("claims",3,0,M(343),List,E|LM,&["name"],"",""),
f("limits",1,0,T::Quantity,Map,E,&[],"",""),
f("requests",2,0,T::Quantity,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F351: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("resources",2,0,M(345),List,E|LM,&["resourceID"],"",""),
];
#[rustfmt::skip]
static F352: &[Field] = &[
f("level",4,0,T::Str,One,E,&[],"",""),
f("role",2,0,T::Str,One,E,&[],"",""),
f("type",3,0,T::Str,One,E,&[],"",""),
f("user",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F353: &[Field] = &[
f("fsType",9,0,T::Str,One,E,&[],"","\"xfs\""),
f("gateway",1,0,T::Str,One,R,&[],"",""),
f("protectionDomain",5,0,T::Str,One,E,&[],"",""),
f("readOnly",10,0,T::Bool,One,E,&[],"",""),
f("secretRef",3,0,M(363),One,P|R,&[],"",""),
f("sslEnabled",4,0,T::Bool,One,E,&[],"",""),
f("storageMode",7,0,T::Str,One,E,&[],"","\"ThinProvisioned\""),
f("storagePool",6,0,T::Str,One,E,&[],"",""),
f("system",2,0,T::Str,One,R,&[],"",""),
f("volumeName",8,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F354: &[Field] = &[
f("fsType",9,0,T::Str,One,E,&[],"","\"xfs\""),
f("gateway",1,0,T::Str,One,R,&[],"",""),
f("protectionDomain",5,0,T::Str,One,E,&[],"",""),
f("readOnly",10,0,T::Bool,One,E,&[],"",""),
f("secretRef",3,0,M(252),One,P|R,&[],"",""),
f("sslEnabled",4,0,T::Bool,One,E,&[],"",""),
f("storageMode",7,0,T::Str,One,E,&[],"","\"ThinProvisioned\""),
f("storagePool",6,0,T::Str,One,E,&[],"",""),
f("system",2,0,T::Str,One,R,&[],"",""),
f("volumeName",8,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F355: &[Field] = &[
f("matchExpressions",1,0,M(356),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F356: &[Field] = &[
f("operator",2,0,T::Str,One,R,&[],"",""),
f("scopeName",1,0,T::Str,One,R,&[],"",""),
f("values",3,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F357: &[Field] = &[
f("localhostProfile",2,0,T::Str,One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F358: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("data",2,0,T::Bytes,Map,E,&[],"",""),
f("immutable",5,0,T::Bool,One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("stringData",4,0,T::Str,Map,E,&[],"",""),
f("type",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F359: &[Field] = &[
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",2,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F360: &[Field] = &[
f("key",2,0,T::Str,One,R,&[],"",""),
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",3,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F361: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(358),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F362: &[Field] = &[
f("items",2,0,M(242),List,E|LA,&[],"",""),
f("name",1,1,T::Str,One,E,&[],"","\"\""),
f("optional",4,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F363: &[Field] = &[
f("name",1,0,T::Str,One,E,&[],"",""),
f("namespace",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F364: &[Field] = &[
f("defaultMode",3,0,T::I32,One,P|E,&[],"",""),
f("items",2,0,M(242),List,E|LA,&[],"",""),
f("optional",4,0,T::Bool,One,P|E,&[],"",""),
f("secretName",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F365: &[Field] = &[
f("allowPrivilegeEscalation",7,0,T::Bool,One,P|E,&[],"",""),
f("appArmorProfile",12,0,M(163),One,P|E,&[],"",""),
f("capabilities",1,0,M(172),One,P|E,&[],"",""),
f("privileged",2,0,T::Bool,One,P|E,&[],"",""),
f("procMount",9,0,T::Str,One,P|E,&[],"",""),
f("readOnlyRootFilesystem",6,0,T::Bool,One,P|E,&[],"",""),
f("runAsGroup",8,0,T::I64,One,P|E,&[],"",""),
f("runAsNonRoot",5,0,T::Bool,One,P|E,&[],"",""),
f("runAsUser",4,0,T::I64,One,P|E,&[],"",""),
f("seLinuxOptions",3,0,M(352),One,P|E,&[],"",""),
f("seccompProfile",11,0,M(357),One,P|E,&[],"",""),
f("windowsOptions",10,0,M(400),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F366: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("reference",1,0,M(282),One,E,&[],"",""),
];
#[rustfmt::skip]
static F367: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(374),One,E,&[],"",""),
f("status",3,0,M(375),One,E,&[],"",""),
];
#[rustfmt::skip]
static F368: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("automountServiceAccountToken",4,0,T::Bool,One,P|E,&[],"",""),
f("imagePullSecrets",3,0,M(252),List,E|LA,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("secrets",2,0,M(282),List,E|LM|PM,&["name"],"name",""),
];
#[rustfmt::skip]
static F369: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(368),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F370: &[Field] = &[
f("audience",1,0,T::Str,One,E,&[],"",""),
f("expirationSeconds",2,0,T::I64,One,P|E,&[],"",""),
f("path",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F371: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(367),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F372: &[Field] = &[
f("appProtocol",6,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,E,&[],"",""),
f("nodePort",5,0,T::I32,One,E,&[],"",""),
f("port",3,0,T::I32,One,R,&[],"",""),
f("protocol",2,0,T::Str,One,E,&[],"","\"TCP\""),
f("targetPort",4,0,T::IntOrString,One,E,&[],"",""),
];
#[rustfmt::skip]
static F373: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("path",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F374: &[Field] = &[
f("allocateLoadBalancerNodePorts",20,0,T::Bool,One,P|E,&[],"",""),
f("clusterIP",3,0,T::Str,One,E,&[],"",""),
f("clusterIPs",18,0,T::Str,List,E|LA,&[],"",""),
f("externalIPs",5,0,T::Str,List,E|LA,&[],"",""),
f("externalName",10,0,T::Str,One,E,&[],"",""),
f("externalTrafficPolicy",11,0,T::Str,One,E,&[],"",""),
f("healthCheckNodePort",12,0,T::I32,One,E,&[],"",""),
f("internalTrafficPolicy",22,0,T::Str,One,P|E,&[],"",""),
f("ipFamilies",19,0,T::Str,List,E|LA,&[],"",""),
f("ipFamilyPolicy",17,0,T::Str,One,P|E,&[],"",""),
f("loadBalancerClass",21,0,T::Str,One,P|E,&[],"",""),
f("loadBalancerIP",8,0,T::Str,One,E,&[],"",""),
f("loadBalancerSourceRanges",9,0,T::Str,List,E|LA,&[],"",""),
f("ports",1,0,M(372),List,E|LM|PM,&["port","protocol"],"port",""),
f("publishNotReadyAddresses",13,0,T::Bool,One,E,&[],"",""),
f("selector",2,0,T::Str,Map,E|A,&[],"",""),
f("sessionAffinity",7,0,T::Str,One,E,&[],"",""),
f("sessionAffinityConfig",14,0,M(376),One,P|E,&[],"",""),
f("trafficDistribution",23,0,T::Str,One,P|E,&[],"",""),
f("type",4,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F375: &[Field] = &[
f("conditions",2,0,M(587),List,E|LM|PM,&["type"],"type",""),
f("loadBalancer",1,0,M(251),One,E,&[],"",""),
];
#[rustfmt::skip]
static F376: &[Field] = &[
f("clientIP",1,0,M(177),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F377: &[Field] = &[
f("seconds",1,0,T::I64,One,R,&[],"",""),
];
#[rustfmt::skip]
static F378: &[Field] = &[
f("fsType",3,0,T::Str,One,E,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
f("secretRef",5,0,M(282),One,P|E,&[],"",""),
f("volumeName",1,0,T::Str,One,E,&[],"",""),
f("volumeNamespace",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F379: &[Field] = &[
f("fsType",3,0,T::Str,One,E,&[],"",""),
f("readOnly",4,0,T::Bool,One,E,&[],"",""),
f("secretRef",5,0,M(252),One,P|E,&[],"",""),
f("volumeName",1,0,T::Str,One,E,&[],"",""),
f("volumeNamespace",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F380: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("value",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F381: &[Field] = &[
f("host",2,0,T::Str,One,E,&[],"",""),
f("port",1,0,T::IntOrString,One,R,&[],"",""),
];
#[rustfmt::skip]
static F382: &[Field] = &[
f("effect",3,0,T::Str,One,R,&[],"",""),
f("key",1,0,T::Str,One,R,&[],"",""),
f("timeAdded",4,0,T::Time,One,P|E,&[],"",""),
f("value",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F383: &[Field] = &[
f("effect",4,0,T::Str,One,E,&[],"",""),
f("key",1,0,T::Str,One,E,&[],"",""),
f("operator",2,0,T::Str,One,E,&[],"",""),
f("tolerationSeconds",5,0,T::I64,One,P|E,&[],"",""),
f("value",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F384: &[Field] = &[
f("key",1,0,T::Str,One,R,&[],"",""),
f("values",2,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F385: &[Field] = &[
f("matchLabelExpressions",1,0,M(384),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F386: &[Field] = &[
f("labelSelector",4,0,M(598),One,P|E,&[],"",""),
f("matchLabelKeys",8,0,T::Str,List,E|LA,&[],"",""),
f("maxSkew",1,0,T::I32,One,R,&[],"",""),
f("minDomains",5,0,T::I32,One,P|E,&[],"",""),
f("nodeAffinityPolicy",6,0,T::Str,One,P|E,&[],"",""),
f("nodeTaintsPolicy",7,0,T::Str,One,P|E,&[],"",""),
f("topologyKey",2,0,T::Str,One,R,&[],"",""),
f("whenUnsatisfiable",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F387: &[Field] = &[
f("apiGroup",1,0,T::Str,One,P,&[],"",""),
f("kind",2,0,T::Str,One,R,&[],"",""),
f("name",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F388: &[Field] = &[
f("apiGroup",1,0,T::Str,One,P,&[],"",""),
f("kind",2,0,T::Str,One,R,&[],"",""),
f("name",3,0,T::Str,One,R,&[],"",""),
f("namespace",4,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F389: &[Field] = &[
f("awsElasticBlockStore",4,2,M(161),One,P|E,&[],"",""),
f("azureDisk",22,2,M(166),One,P|E,&[],"",""),
f("azureFile",18,2,M(168),One,P|E,&[],"",""),
f("cephfs",14,2,M(174),One,P|E,&[],"",""),
f("cinder",13,2,M(176),One,P|E,&[],"",""),
f("configMap",19,2,M(188),One,P|E,&[],"",""),
f("csi",28,2,M(171),One,P|E,&[],"",""),
f("downwardAPI",16,2,M(205),One,P|E,&[],"",""),
f("emptyDir",2,2,M(206),One,P|E,&[],"",""),
f("ephemeral",29,2,M(217),One,P|E,&[],"",""),
f("fc",17,2,M(223),One,P|E,&[],"",""),
f("flexVolume",12,2,M(226),One,P|E,&[],"",""),
f("flocker",15,2,M(227),One,P|E,&[],"",""),
f("gcePersistentDisk",3,2,M(228),One,P|E,&[],"",""),
f("gitRepo",5,2,M(230),One,P|E,&[],"",""),
f("glusterfs",9,2,M(232),One,P|E,&[],"",""),
f("hostPath",1,2,M(237),One,P|E,&[],"",""),
f("image",30,2,M(240),One,P|E,&[],"",""),
f("iscsi",8,2,M(239),One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("nfs",7,2,M(255),One,P|E,&[],"",""),
f("persistentVolumeClaim",10,2,M(290),One,P|E,&[],"",""),
f("photonPersistentDisk",23,2,M(295),One,P|E,&[],"",""),
f("portworxVolume",24,2,M(327),One,P|E,&[],"",""),
f("projected",26,2,M(333),One,P|E,&[],"",""),
f("quobyte",21,2,M(334),One,P|E,&[],"",""),
f("rbd",11,2,M(336),One,P|E,&[],"",""),
f("scaleIO",25,2,M(354),One,P|E,&[],"",""),
f("secret",6,2,M(364),One,P|E,&[],"",""),
f("storageos",27,2,M(379),One,P|E,&[],"",""),
f("vsphereVolume",20,2,M(398),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F390: &[Field] = &[
f("devicePath",2,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F391: &[Field] = &[
f("mountPath",3,0,T::Str,One,R,&[],"",""),
f("mountPropagation",5,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("readOnly",2,0,T::Bool,One,E,&[],"",""),
f("recursiveReadOnly",7,0,T::Str,One,P|E,&[],"",""),
f("subPath",4,0,T::Str,One,E,&[],"",""),
f("subPathExpr",6,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F392: &[Field] = &[
f("mountPath",2,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("readOnly",3,0,T::Bool,One,E,&[],"",""),
f("recursiveReadOnly",4,0,T::Str,One,P|E,&[],"",""),
f("volumeStatus",5,0,M(397),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F393: &[Field] = &[
f("required",1,0,M(274),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F394: &[Field] = &[
f("clusterTrustBundle",5,0,M(178),One,P|E,&[],"",""),
f("configMap",3,0,M(187),One,P|E,&[],"",""),
f("downwardAPI",2,0,M(203),One,P|E,&[],"",""),
f("podCertificate",6,0,M(301),One,P|E,&[],"",""),
f("secret",1,0,M(362),One,P|E,&[],"",""),
f("serviceAccountToken",4,0,M(370),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F395: &[Field] = &[
f("limits",1,0,T::Quantity,Map,E,&[],"",""),
f("requests",2,0,T::Quantity,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F396: &[Field] = &[
f("awsElasticBlockStore",4,0,M(161),One,P|E,&[],"",""),
f("azureDisk",22,0,M(166),One,P|E,&[],"",""),
f("azureFile",18,0,M(168),One,P|E,&[],"",""),
f("cephfs",14,0,M(174),One,P|E,&[],"",""),
f("cinder",13,0,M(176),One,P|E,&[],"",""),
f("configMap",19,0,M(188),One,P|E,&[],"",""),
f("csi",28,0,M(171),One,P|E,&[],"",""),
f("downwardAPI",16,0,M(205),One,P|E,&[],"",""),
f("emptyDir",2,0,M(206),One,P|E,&[],"",""),
f("ephemeral",29,0,M(217),One,P|E,&[],"",""),
f("fc",17,0,M(223),One,P|E,&[],"",""),
f("flexVolume",12,0,M(226),One,P|E,&[],"",""),
f("flocker",15,0,M(227),One,P|E,&[],"",""),
f("gcePersistentDisk",3,0,M(228),One,P|E,&[],"",""),
f("gitRepo",5,0,M(230),One,P|E,&[],"",""),
f("glusterfs",9,0,M(232),One,P|E,&[],"",""),
f("hostPath",1,0,M(237),One,P|E,&[],"",""),
f("image",30,0,M(240),One,P|E,&[],"",""),
f("iscsi",8,0,M(239),One,P|E,&[],"",""),
f("nfs",7,0,M(255),One,P|E,&[],"",""),
f("persistentVolumeClaim",10,0,M(290),One,P|E,&[],"",""),
f("photonPersistentDisk",23,0,M(295),One,P|E,&[],"",""),
f("portworxVolume",24,0,M(327),One,P|E,&[],"",""),
f("projected",26,0,M(333),One,P|E,&[],"",""),
f("quobyte",21,0,M(334),One,P|E,&[],"",""),
f("rbd",11,0,M(336),One,P|E,&[],"",""),
f("scaleIO",25,0,M(354),One,P|E,&[],"",""),
f("secret",6,0,M(364),One,P|E,&[],"",""),
f("storageos",27,0,M(379),One,P|E,&[],"",""),
f("vsphereVolume",20,0,M(398),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F397: &[Field] = &[
f("image",1,0,M(241),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F398: &[Field] = &[
f("fsType",2,0,T::Str,One,E,&[],"",""),
f("storagePolicyID",4,0,T::Str,One,E,&[],"",""),
f("storagePolicyName",3,0,T::Str,One,E,&[],"",""),
f("volumePath",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F399: &[Field] = &[
f("podAffinityTerm",2,0,M(298),One,R,&[],"",""),
f("weight",1,0,T::I32,One,R,&[],"",""),
];
#[rustfmt::skip]
static F400: &[Field] = &[
f("gmsaCredentialSpec",2,0,T::Str,One,P|E,&[],"",""),
f("gmsaCredentialSpecName",1,0,T::Str,One,P|E,&[],"",""),
f("hostProcess",4,0,T::Bool,One,P|E,&[],"",""),
f("runAsUserName",3,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F401: &[Field] = &[
f("addresses",1,0,T::Str,List,R|LS,&[],"",""),
f("conditions",2,0,M(402),One,E,&[],"",""),
f("deprecatedTopology",5,0,T::Str,Map,E,&[],"",""),
f("hints",8,0,M(403),One,P|E,&[],"",""),
f("hostname",3,0,T::Str,One,P|E,&[],"",""),
f("nodeName",6,0,T::Str,One,P|E,&[],"",""),
f("targetRef",4,0,M(282),One,P|E,&[],"",""),
f("zone",7,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F402: &[Field] = &[
f("ready",1,0,T::Bool,One,P|E,&[],"",""),
f("serving",2,0,T::Bool,One,P|E,&[],"",""),
f("terminating",3,0,T::Bool,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F403: &[Field] = &[
f("forNodes",2,0,M(407),List,E|LA,&[],"",""),
f("forZones",1,0,M(408),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F404: &[Field] = &[
f("appProtocol",4,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,P|E,&[],"",""),
f("port",3,0,T::I32,One,P|E,&[],"",""),
f("protocol",2,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F405: &[Field] = &[
f("addressType",4,0,T::Str,One,R,&[],"",""),
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("endpoints",2,0,M(401),List,LA,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("ports",3,0,M(404),List,LA,&[],"",""),
];
#[rustfmt::skip]
static F406: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(405),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F407: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F408: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F409: &[Field] = &[
f("action",6,0,T::Str,One,E,&[],"",""),
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("deprecatedCount",15,0,T::I32,One,E,&[],"",""),
f("deprecatedFirstTimestamp",13,0,T::Time,One,E,&[],"",""),
f("deprecatedLastTimestamp",14,0,T::Time,One,E,&[],"",""),
f("deprecatedSource",12,0,M(221),One,E,&[],"",""),
f("eventTime",2,0,T::MicroTime,One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,0,&[],"",""),
f("note",10,0,T::Str,One,E,&[],"",""),
f("reason",7,0,T::Str,One,E,&[],"",""),
f("regarding",8,0,M(282),One,E,&[],"",""),
f("related",9,0,M(282),One,P|E,&[],"",""),
f("reportingController",4,0,T::Str,One,E,&[],"",""),
f("reportingInstance",5,0,T::Str,One,E,&[],"",""),
f("series",3,0,M(411),One,P|E,&[],"",""),
f("type",11,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F410: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(409),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F411: &[Field] = &[
f("count",1,0,T::I32,One,R,&[],"",""),
f("lastObservedTime",2,0,T::MicroTime,One,R,&[],"",""),
];
#[rustfmt::skip]
static F412: &[Field] = &[
f("lendablePercent",2,0,T::I32,One,P|E,&[],"",""),
f("nominalConcurrencyShares",1,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F413: &[Field] = &[
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F414: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(417),One,E,&[],"",""),
f("status",3,0,M(418),One,E,&[],"",""),
];
#[rustfmt::skip]
static F415: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,E,&[],"",""),
f("type",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F416: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(414),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F417: &[Field] = &[
f("distinguisherMethod",3,0,M(413),One,P|E,&[],"",""),
f("matchingPrecedence",2,0,T::I32,One,0,&[],"",""),
f("priorityLevelConfiguration",1,0,M(427),One,R,&[],"",""),
f("rules",4,0,M(423),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F418: &[Field] = &[
f("conditions",1,0,M(415),List,E|LM|PM,&["type"],"type",""),
];
#[rustfmt::skip]
static F419: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F420: &[Field] = &[
f("queuing",2,0,M(430),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F421: &[Field] = &[
f("borrowingLimitPercent",4,0,T::I32,One,P|E,&[],"",""),
f("lendablePercent",3,0,T::I32,One,P|E,&[],"",""),
f("limitResponse",2,0,M(420),One,E,&[],"",""),
f("nominalConcurrencyShares",1,0,T::I32,One,P,&[],"",""),
];
#[rustfmt::skip]
static F422: &[Field] = &[
f("nonResourceURLs",6,0,T::Str,List,R|LS,&[],"",""),
f("verbs",1,0,T::Str,List,R|LS,&[],"",""),
];
#[rustfmt::skip]
static F423: &[Field] = &[
f("nonResourceRules",3,0,M(422),List,E|LA,&[],"",""),
f("resourceRules",2,0,M(431),List,E|LA,&[],"",""),
f("subjects",1,0,M(433),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F424: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(428),One,E,&[],"",""),
f("status",3,0,M(429),One,E,&[],"",""),
];
#[rustfmt::skip]
static F425: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,E,&[],"",""),
f("type",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F426: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(424),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F427: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F428: &[Field] = &[
f("exempt",3,0,M(412),One,P|E,&[],"",""),
f("limited",2,0,M(421),One,P|E,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F429: &[Field] = &[
f("conditions",1,0,M(425),List,E|LM|PM,&["type"],"type",""),
];
#[rustfmt::skip]
static F430: &[Field] = &[
f("handSize",2,0,T::I32,One,0,&[],"",""),
f("queueLengthLimit",3,0,T::I32,One,0,&[],"",""),
f("queues",1,0,T::I32,One,0,&[],"",""),
];
#[rustfmt::skip]
static F431: &[Field] = &[
f("apiGroups",2,0,T::Str,List,R|LS,&[],"",""),
f("clusterScope",4,0,T::Bool,One,E,&[],"",""),
f("namespaces",5,0,T::Str,List,LS,&[],"",""),
f("resources",3,0,T::Str,List,R|LS,&[],"",""),
f("verbs",1,0,T::Str,List,R|LS,&[],"",""),
];
#[rustfmt::skip]
static F432: &[Field] = &[
f("name",2,0,T::Str,One,R,&[],"",""),
f("namespace",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F433: &[Field] = &[
f("group",3,0,M(419),One,P|E,&[],"",""),
f("kind",1,0,T::Str,One,R,&[],"",""),
f("serviceAccount",4,0,M(432),One,P|E,&[],"",""),
f("user",2,0,M(434),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F434: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F435: &[Field] = &[
f("backend",2,0,M(442),One,R,&[],"",""),
f("path",1,0,T::Str,One,E,&[],"",""),
f("pathType",3,0,T::Str,One,P|R,&[],"",""),
];
#[rustfmt::skip]
static F436: &[Field] = &[
f("paths",1,0,M(435),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F437: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(439),One,E|R,&[],"",""),
];
#[rustfmt::skip]
static F438: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(437),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F439: &[Field] = &[
f("parentRef",1,0,M(464),One,P|E|R,&[],"",""),
];
#[rustfmt::skip]
static F440: &[Field] = &[
f("cidr",1,0,T::Str,One,R,&[],"",""),
f("except",2,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F441: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(454),One,E,&[],"",""),
f("status",3,0,M(455),One,E,&[],"",""),
];
#[rustfmt::skip]
static F442: &[Field] = &[
f("resource",3,0,M(387),One,P|E,&[],"",""),
f("service",4,0,M(453),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F443: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(446),One,E,&[],"",""),
];
#[rustfmt::skip]
static F444: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(443),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F445: &[Field] = &[
f("apiGroup",1,0,T::Str,One,P|E,&[],"",""),
f("kind",2,0,T::Str,One,R,&[],"",""),
f("name",3,0,T::Str,One,R,&[],"",""),
f("namespace",5,0,T::Str,One,P|E,&[],"",""),
f("scope",4,0,T::Str,One,P,&[],"",""),
];
#[rustfmt::skip]
static F446: &[Field] = &[
f("controller",1,0,T::Str,One,E,&[],"",""),
f("parameters",2,0,M(445),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F447: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(441),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F448: &[Field] = &[
f("hostname",2,0,T::Str,One,E,&[],"",""),
f("ip",1,0,T::Str,One,E,&[],"",""),
f("ports",4,0,M(450),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F449: &[Field] = &[
f("ingress",1,0,M(448),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F450: &[Field] = &[
f("error",3,0,T::Str,One,P|E,&[],"",""),
f("port",1,0,T::I32,One,R,&[],"",""),
f("protocol",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F451: &[Field] = &[
f("host",1,0,T::Str,One,E,&[],"",""),
f("http",1,2,M(436),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F452: &[Field] = &[
f("http",1,0,M(436),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F453: &[Field] = &[
f("name",1,0,T::Str,One,R,&[],"",""),
f("port",2,0,M(465),One,E,&[],"",""),
];
#[rustfmt::skip]
static F454: &[Field] = &[
f("defaultBackend",1,0,M(442),One,P|E,&[],"",""),
f("ingressClassName",4,0,T::Str,One,P|E,&[],"",""),
f("rules",3,0,M(451),List,E|LA,&[],"",""),
f("tls",2,0,M(456),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F455: &[Field] = &[
f("loadBalancer",1,0,M(449),One,E,&[],"",""),
];
#[rustfmt::skip]
static F456: &[Field] = &[
f("hosts",1,0,T::Str,List,E|LA,&[],"",""),
f("secretName",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F457: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(463),One,E,&[],"",""),
];
#[rustfmt::skip]
static F458: &[Field] = &[
f("ports",1,0,M(462),List,E|LA,&[],"",""),
f("to",2,0,M(461),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F459: &[Field] = &[
f("from",2,0,M(461),List,E|LA,&[],"",""),
f("ports",1,0,M(462),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F460: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(457),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F461: &[Field] = &[
f("ipBlock",3,0,M(440),One,P|E,&[],"",""),
f("namespaceSelector",2,0,M(598),One,P|E,&[],"",""),
f("podSelector",1,0,M(598),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F462: &[Field] = &[
f("endPort",3,0,T::I32,One,P|E,&[],"",""),
f("port",2,0,T::IntOrString,One,P|E,&[],"",""),
f("protocol",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F463: &[Field] = &[
f("egress",3,0,M(458),List,E|LA,&[],"",""),
f("ingress",2,0,M(459),List,E|LA,&[],"",""),
f("podSelector",1,0,M(598),One,0,&[],"",""),
f("policyTypes",4,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F464: &[Field] = &[
f("group",1,0,T::Str,One,E,&[],"",""),
f("name",4,0,T::Str,One,E|R,&[],"",""),
f("namespace",3,0,T::Str,One,E,&[],"",""),
f("resource",2,0,T::Str,One,E|R,&[],"",""),
];
#[rustfmt::skip]
static F465: &[Field] = &[
f("name",1,0,T::Str,One,E,&[],"",""),
f("number",2,0,T::I32,One,E,&[],"",""),
];
#[rustfmt::skip]
static F466: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(468),One,E,&[],"",""),
f("status",3,0,M(469),One,E,&[],"",""),
];
#[rustfmt::skip]
static F467: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(466),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F468: &[Field] = &[
f("cidrs",1,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F469: &[Field] = &[
f("conditions",1,0,M(587),List,E|LM|PM,&["type"],"type",""),
];
#[rustfmt::skip]
static F470: &[Field] = &[
f("podFixed",1,0,T::Quantity,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F471: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("handler",2,0,T::Str,One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("overhead",3,0,M(470),One,P|E,&[],"",""),
f("scheduling",4,0,M(473),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F472: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(471),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F473: &[Field] = &[
f("nodeSelector",1,0,T::Str,Map,E|A,&[],"",""),
f("tolerations",2,0,M(383),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F474: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("deleteOptions",2,0,M(589),One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
];
#[rustfmt::skip]
static F475: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(477),One,E,&[],"",""),
f("status",3,0,M(478),One,E,&[],"",""),
];
#[rustfmt::skip]
static F476: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(475),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F477: &[Field] = &[
f("maxUnavailable",3,0,T::IntOrString,One,P|E,&[],"",""),
f("minAvailable",1,0,T::IntOrString,One,P|E,&[],"",""),
f("selector",2,0,M(598),One,P|E|PX,&[],"",""),
f("unhealthyPodEvictionPolicy",4,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F478: &[Field] = &[
f("conditions",7,0,M(587),List,E|LM|PM,&["type"],"type",""),
f("currentHealthy",4,0,T::I32,One,0,&[],"",""),
f("desiredHealthy",5,0,T::I32,One,0,&[],"",""),
f("disruptedPods",2,0,T::Time,Map,E,&[],"",""),
f("disruptionsAllowed",3,0,T::I32,One,0,&[],"",""),
f("expectedPods",6,0,T::I32,One,0,&[],"",""),
f("observedGeneration",1,0,T::I64,One,E,&[],"",""),
];
#[rustfmt::skip]
static F479: &[Field] = &[
f("clusterRoleSelectors",1,0,M(598),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F480: &[Field] = &[
f("aggregationRule",3,0,M(479),One,P|E,&[],"",""),
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("rules",2,0,M(484),List,LA,&[],"",""),
];
#[rustfmt::skip]
static F481: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("roleRef",3,0,M(489),One,R,&[],"",""),
f("subjects",2,0,M(490),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F482: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(481),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F483: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(480),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F484: &[Field] = &[
f("apiGroups",2,0,T::Str,List,E|LA,&[],"",""),
f("nonResourceURLs",5,0,T::Str,List,E|LA,&[],"",""),
f("resourceNames",4,0,T::Str,List,E|LA,&[],"",""),
f("resources",3,0,T::Str,List,E|LA,&[],"",""),
f("verbs",1,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F485: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("rules",2,0,M(484),List,LA,&[],"",""),
];
#[rustfmt::skip]
static F486: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("roleRef",3,0,M(489),One,R,&[],"",""),
f("subjects",2,0,M(490),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F487: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(486),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F488: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(485),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F489: &[Field] = &[
f("apiGroup",1,0,T::Str,One,0,&[],"",""),
f("kind",2,0,T::Str,One,R,&[],"",""),
f("name",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F490: &[Field] = &[
f("apiGroup",2,0,T::Str,One,E,&[],"",""),
f("kind",1,0,T::Str,One,R,&[],"",""),
f("name",3,0,T::Str,One,R,&[],"",""),
f("namespace",4,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F491: &[Field] = &[
f("conditions",4,0,M(587),List,LM,&["type"],"",""),
f("data",5,0,T::Raw,One,P|E,&[],"",""),
f("device",3,0,T::Str,One,R,&[],"",""),
f("driver",1,0,T::Str,One,R,&[],"",""),
f("networkData",6,0,M(520),One,P|E,&[],"",""),
f("pool",2,0,T::Str,One,R,&[],"",""),
f("shareID",7,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F492: &[Field] = &[
f("allocationTimestamp",5,0,T::Time,One,P|E,&[],"",""),
f("devices",1,0,M(501),One,E,&[],"",""),
f("nodeSelector",3,0,M(274),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F493: &[Field] = &[
f("expression",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F494: &[Field] = &[
f("default",1,0,T::Quantity,One,P,&[],"",""),
f("validRange",4,0,M(495),One,P|E,&[],"",""),
f("validValues",3,0,T::Quantity,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F495: &[Field] = &[
f("max",2,0,T::Quantity,One,P|E,&[],"",""),
f("min",1,0,T::Quantity,One,P|E|R,&[],"",""),
f("step",3,0,T::Quantity,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F496: &[Field] = &[
f("requests",1,0,T::Quantity,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F497: &[Field] = &[
f("value",1,0,T::Quantity,One,R,&[],"",""),
];
#[rustfmt::skip]
static F498: &[Field] = &[
f("counters",2,0,M(497),Map,E|R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F499: &[Field] = &[
f("allNodes",7,0,T::Bool,One,P|E,&[],"",""),
f("allowMultipleAllocations",12,0,T::Bool,One,P|E,&[],"",""),
f("attributes",2,0,M(502),Map,E,&[],"",""),
f("bindingConditions",10,0,T::Str,List,E|LA,&[],"",""),
f("bindingFailureConditions",11,0,T::Str,List,E|LA,&[],"",""),
f("bindsToNode",9,0,T::Bool,One,P|E,&[],"",""),
f("capacity",3,0,M(503),Map,E,&[],"",""),
f("consumesCounters",4,0,M(512),List,E|LA,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("nodeAllocatableResourceMappings",13,0,M(521),Map,E,&[],"",""),
f("nodeName",5,0,T::Str,One,P|E,&[],"",""),
f("nodeSelector",6,0,M(274),One,P|E,&[],"",""),
f("taints",8,0,M(517),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F500: &[Field] = &[
f("opaque",1,3,M(522),One,P|E,&[],"",""),
f("requests",2,0,T::Str,List,E|LA,&[],"",""),
f("source",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F501: &[Field] = &[
f("config",2,0,M(500),List,E|LA,&[],"",""),
f("results",1,0,M(514),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F502: &[Field] = &[
f("bool",3,0,T::Bool,One,P|E,&[],"",""),
f("bools",7,0,T::Bool,List,E|LA,&[],"",""),
f("int",2,0,T::I64,One,P|E,&[],"",""),
f("ints",6,0,T::I64,List,E|LA,&[],"",""),
f("string",4,0,T::Str,One,P|E,&[],"",""),
f("strings",8,0,T::Str,List,E|LA,&[],"",""),
f("version",5,0,T::Str,One,P|E,&[],"",""),
f("versions",9,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F503: &[Field] = &[
f("requestPolicy",2,0,M(494),One,P|E,&[],"",""),
f("value",1,0,T::Quantity,One,R,&[],"",""),
];
#[rustfmt::skip]
static F504: &[Field] = &[
f("config",3,0,M(505),List,E|LA,&[],"",""),
f("constraints",2,0,M(511),List,E|LA,&[],"",""),
f("requests",1,0,M(513),List,LA,&[],"",""),
];
#[rustfmt::skip]
static F505: &[Field] = &[
f("opaque",1,2,M(522),One,P|E,&[],"",""),
f("requests",1,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F506: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(509),One,R,&[],"",""),
];
#[rustfmt::skip]
static F507: &[Field] = &[
f("opaque",1,1,M(522),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F508: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(506),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F509: &[Field] = &[
f("config",2,0,M(507),List,E|LA,&[],"",""),
f("extendedResourceName",4,0,T::Str,One,P|E,&[],"",""),
f("selectors",1,0,M(515),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F510: &[Field] = &[
f("opaque",1,0,M(522),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F511: &[Field] = &[
f("distinctAttribute",3,0,T::Str,One,P|E,&[],"",""),
f("matchAttribute",2,0,T::Str,One,P|E,&[],"",""),
f("requests",1,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F512: &[Field] = &[
f("counterSet",1,0,T::Str,One,R,&[],"",""),
f("counters",2,0,M(497),Map,E|R,&[],"",""),
];
#[rustfmt::skip]
static F513: &[Field] = &[
f("exactly",2,0,M(519),One,P|E,&[],"",""),
f("firstAvailable",3,0,M(516),List,E|LA,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F514: &[Field] = &[
f("adminAccess",5,0,T::Bool,One,P|E,&[],"",""),
f("bindingConditions",7,0,T::Str,List,E|LA,&[],"",""),
f("bindingFailureConditions",8,0,T::Str,List,E|LA,&[],"",""),
f("consumedCapacity",10,0,T::Quantity,Map,E,&[],"",""),
f("device",4,0,T::Str,One,R,&[],"",""),
f("driver",2,0,T::Str,One,R,&[],"",""),
f("pool",3,0,T::Str,One,R,&[],"",""),
f("request",1,0,T::Str,One,R,&[],"",""),
f("shareID",9,0,T::Str,One,P|E,&[],"",""),
f("tolerations",6,0,M(518),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F515: &[Field] = &[
f("cel",1,0,M(493),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F516: &[Field] = &[
f("allocationMode",4,0,T::Str,One,E,&[],"",""),
f("capacity",7,0,M(496),One,P|E,&[],"",""),
f("count",5,0,T::I64,One,E,&[],"",""),
f("deviceClassName",2,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("selectors",3,0,M(515),List,E|LA,&[],"",""),
f("tolerations",6,0,M(518),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F517: &[Field] = &[
f("effect",3,0,T::Str,One,R,&[],"",""),
f("key",1,0,T::Str,One,R,&[],"",""),
f("timeAdded",4,0,T::Time,One,P|E,&[],"",""),
f("value",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F518: &[Field] = &[
f("effect",4,0,T::Str,One,E,&[],"",""),
f("key",1,0,T::Str,One,E,&[],"",""),
f("operator",2,0,T::Str,One,E,&[],"","\"Equal\""),
f("tolerationSeconds",5,0,T::I64,One,P|E,&[],"",""),
f("value",3,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F519: &[Field] = &[
f("adminAccess",5,0,T::Bool,One,P|E,&[],"",""),
f("allocationMode",3,0,T::Str,One,E,&[],"",""),
f("capacity",7,0,M(496),One,P|E,&[],"",""),
f("count",4,0,T::I64,One,E,&[],"",""),
f("deviceClassName",1,0,T::Str,One,R,&[],"",""),
f("selectors",2,0,M(515),List,E|LA,&[],"",""),
f("tolerations",6,0,M(518),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F520: &[Field] = &[
f("hardwareAddress",3,0,T::Str,One,E,&[],"",""),
f("interfaceName",1,0,T::Str,One,E,&[],"",""),
f("ips",2,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F521: &[Field] = &[
f("allocationMultiplier",2,0,T::Quantity,One,P|E,&[],"",""),
f("capacityKey",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F522: &[Field] = &[
f("driver",1,0,T::Str,One,R,&[],"",""),
f("parameters",2,0,T::Raw,One,R,&[],"",""),
];
#[rustfmt::skip]
static F523: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(526),One,R,&[],"",""),
f("status",3,0,M(527),One,E,&[],"",""),
];
#[rustfmt::skip]
static F524: &[Field] = &[
f("apiGroup",1,0,T::Str,One,E,&[],"",""),
f("name",4,0,T::Str,One,R,&[],"",""),
f("resource",3,0,T::Str,One,R,&[],"",""),
f("uid",5,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F525: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(523),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F526: &[Field] = &[
f("devices",1,0,M(504),One,0,&[],"",""),
];
#[rustfmt::skip]
static F527: &[Field] = &[
f("allocation",1,0,M(492),One,P|E,&[],"",""),
f("devices",4,0,M(491),List,E|LM,&["driver","device","pool","shareID"],"",""),
f("reservedFor",2,0,M(524),List,E|LM|PM,&["uid"],"uid",""),
];
#[rustfmt::skip]
static F528: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(530),One,R,&[],"",""),
];
#[rustfmt::skip]
static F529: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(528),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F530: &[Field] = &[
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(526),One,R,&[],"",""),
];
#[rustfmt::skip]
static F531: &[Field] = &[
f("generation",2,0,T::I64,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("resourceSliceCount",3,0,T::I64,One,R,&[],"",""),
];
#[rustfmt::skip]
static F532: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(534),One,R,&[],"",""),
];
#[rustfmt::skip]
static F533: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(532),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F534: &[Field] = &[
f("allNodes",5,0,T::Bool,One,P|E,&[],"",""),
f("devices",6,0,M(499),List,E|LA,&[],"",""),
f("driver",1,0,T::Str,One,R,&[],"",""),
f("nodeName",3,0,T::Str,One,P|E,&[],"",""),
f("nodeSelector",4,0,M(274),One,P|E,&[],"",""),
f("perDeviceNodeSelection",7,0,T::Bool,One,P|E,&[],"",""),
f("pool",2,0,M(531),One,R,&[],"",""),
f("sharedCounters",8,0,M(498),List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F535: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("description",4,0,T::Str,One,E,&[],"",""),
f("globalDefault",3,0,T::Bool,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("preemptionPolicy",5,0,T::Str,One,P|E,&[],"",""),
f("value",2,0,T::I32,One,0,&[],"",""),
];
#[rustfmt::skip]
static F536: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(535),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F537: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(539),One,R,&[],"",""),
];
#[rustfmt::skip]
static F538: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(537),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F539: &[Field] = &[
f("attachRequired",1,0,T::Bool,One,P|E,&[],"",""),
f("fsGroupPolicy",5,0,T::Str,One,P|E,&[],"",""),
f("nodeAllocatableUpdatePeriodSeconds",9,0,T::I64,One,P|E,&[],"",""),
f("podInfoOnMount",2,0,T::Bool,One,P|E,&[],"",""),
f("preventPodSchedulingIfMissing",11,0,T::Bool,One,P|E,&[],"",""),
f("requiresRepublish",7,0,T::Bool,One,P|E,&[],"",""),
f("seLinuxMount",8,0,T::Bool,One,P|E,&[],"",""),
f("serviceAccountTokenInSecrets",10,0,T::Bool,One,P|E,&[],"",""),
f("storageCapacity",4,0,T::Bool,One,P|E,&[],"",""),
f("tokenRequests",6,0,M(548),List,E|LA,&[],"",""),
f("volumeLifecycleModes",3,0,T::Str,List,E|LS,&[],"",""),
];
#[rustfmt::skip]
static F540: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(543),One,R,&[],"",""),
];
#[rustfmt::skip]
static F541: &[Field] = &[
f("allocatable",4,0,M(557),One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("nodeID",2,0,T::Str,One,R,&[],"",""),
f("topologyKeys",3,0,T::Str,List,LA,&[],"",""),
];
#[rustfmt::skip]
static F542: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(540),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F543: &[Field] = &[
f("drivers",1,0,M(541),List,R|LM|PM,&["name"],"name",""),
];
#[rustfmt::skip]
static F544: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("capacity",4,0,T::Quantity,One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("maximumVolumeSize",5,0,T::Quantity,One,P|E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("nodeTopology",2,0,M(598),One,P|E,&[],"",""),
f("storageClassName",3,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F545: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(544),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F546: &[Field] = &[
f("allowVolumeExpansion",6,0,T::Bool,One,P|E,&[],"",""),
f("allowedTopologies",8,0,M(385),List,E|LA,&[],"",""),
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("mountOptions",5,0,T::Str,List,E|LA,&[],"",""),
f("parameters",3,0,T::Str,Map,E,&[],"",""),
f("provisioner",2,0,T::Str,One,R,&[],"",""),
f("reclaimPolicy",4,0,T::Str,One,P|E,&[],"",""),
f("volumeBindingMode",7,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F547: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(546),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F548: &[Field] = &[
f("audience",1,0,T::Str,One,R,&[],"",""),
f("expirationSeconds",2,0,T::I64,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F549: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(552),One,R,&[],"",""),
f("status",3,0,M(553),One,E,&[],"",""),
];
#[rustfmt::skip]
static F550: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(549),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F551: &[Field] = &[
f("inlineVolumeSpec",2,0,M(293),One,P|E,&[],"",""),
f("persistentVolumeName",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F552: &[Field] = &[
f("attacher",1,0,T::Str,One,R,&[],"",""),
f("nodeName",3,0,T::Str,One,R,&[],"",""),
f("source",2,0,M(551),One,R,&[],"",""),
];
#[rustfmt::skip]
static F553: &[Field] = &[
f("attachError",3,0,M(556),One,P|E,&[],"",""),
f("attached",1,0,T::Bool,One,R,&[],"",""),
f("attachmentMetadata",2,0,T::Str,Map,E,&[],"",""),
f("detachError",4,0,M(556),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F554: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("driverName",2,0,T::Str,One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("parameters",3,0,T::Str,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F555: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(554),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F556: &[Field] = &[
f("errorCode",3,0,T::I32,One,P|E,&[],"",""),
f("message",2,0,T::Str,One,E,&[],"",""),
f("time",1,0,T::Time,One,E,&[],"",""),
];
#[rustfmt::skip]
static F557: &[Field] = &[
f("count",1,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F558: &[Field] = &[
f("desiredAPIVersion",2,0,T::Str,One,R,&[],"",""),
f("objects",3,0,T::Raw,List,R|LA,&[],"",""),
f("uid",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F559: &[Field] = &[
f("convertedObjects",2,0,T::Raw,List,R|LA,&[],"",""),
f("result",3,0,M(614),One,R,&[],"",""),
f("uid",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F560: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("request",1,0,M(558),One,P|E,&[],"",""),
f("response",2,0,M(559),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F561: &[Field] = &[
f("description",4,0,T::Str,One,E,&[],"",""),
f("format",3,0,T::Str,One,E,&[],"",""),
f("jsonPath",6,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("priority",5,0,T::I32,One,E,&[],"",""),
f("type",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F562: &[Field] = &[
f("strategy",1,0,T::Str,One,R,&[],"",""),
f("webhook",2,0,M(580),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F563: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
f("spec",2,0,M(567),One,R,&[],"",""),
f("status",3,0,M(568),One,E,&[],"",""),
];
#[rustfmt::skip]
static F564: &[Field] = &[
f("lastTransitionTime",3,0,T::Time,One,E,&[],"",""),
f("message",5,0,T::Str,One,E,&[],"",""),
f("observedGeneration",6,0,T::I64,One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F565: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(563),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F566: &[Field] = &[
f("categories",6,0,T::Str,List,E|LA,&[],"",""),
f("kind",4,0,T::Str,One,R,&[],"",""),
f("listKind",5,0,T::Str,One,E,&[],"",""),
f("plural",1,0,T::Str,One,R,&[],"",""),
f("shortNames",3,0,T::Str,List,E|LA,&[],"",""),
f("singular",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F567: &[Field] = &[
f("conversion",9,0,M(562),One,P|E,&[],"",""),
f("group",1,0,T::Str,One,R,&[],"",""),
f("names",3,0,M(566),One,R,&[],"",""),
f("preserveUnknownFields",10,0,T::Bool,One,E,&[],"",""),
f("scope",4,0,T::Str,One,R,&[],"",""),
f("versions",7,0,M(569),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F568: &[Field] = &[
f("acceptedNames",2,0,M(566),One,0,&[],"",""),
f("conditions",1,0,M(564),List,LM,&["type"],"",""),
f("observedGeneration",4,0,T::I64,One,E,&[],"",""),
f("storedVersions",3,0,T::Str,List,LA,&[],"",""),
];
#[rustfmt::skip]
static F569: &[Field] = &[
f("additionalPrinterColumns",6,0,M(561),List,E|LA,&[],"",""),
f("deprecated",7,0,T::Bool,One,E,&[],"",""),
f("deprecationWarning",8,0,T::Str,One,P|E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("schema",4,0,M(573),One,P|E,&[],"",""),
f("selectableFields",9,0,M(576),List,E|LA,&[],"",""),
f("served",2,0,T::Bool,One,R,&[],"",""),
f("storage",3,0,T::Bool,One,R,&[],"",""),
f("subresources",5,0,M(572),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F570: &[Field] = &[
f("labelSelectorPath",3,0,T::Str,One,P|E,&[],"",""),
f("specReplicasPath",1,0,T::Str,One,R,&[],"",""),
f("statusReplicasPath",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F571: &[Field] = &[
];
#[rustfmt::skip]
static F572: &[Field] = &[
f("scale",2,0,M(570),One,P|E,&[],"",""),
f("status",1,0,M(571),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F573: &[Field] = &[
f("openAPIV3Schema",1,0,M(575),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F574: &[Field] = &[
f("description",1,0,T::Str,One,E,&[],"",""),
f("url",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F575: &[Field] = &[
f("$ref",3,0,T::Str,One,P|E,&[],"",""),
f("$schema",2,0,T::Str,One,E,&[],"",""),
f("additionalItems",33,0,O(575,Or::Bool),One,P|E,&[],"",""),
f("additionalProperties",30,0,O(575,Or::Bool),One,P|E,&[],"",""),
f("allOf",25,0,M(575),List,E|LA,&[],"",""),
f("anyOf",27,0,M(575),List,E|LA,&[],"",""),
f("default",8,0,T::Json,One,P|E,&[],"",""),
f("definitions",34,0,M(575),Map,E,&[],"",""),
f("dependencies",32,0,O(575,Or::Strings),Map,E,&[],"",""),
f("description",4,0,T::Str,One,E,&[],"",""),
f("enum",20,0,T::Json,List,E|LA,&[],"",""),
f("example",36,0,T::Json,One,P|E,&[],"",""),
f("exclusiveMaximum",10,0,T::Bool,One,E,&[],"",""),
f("exclusiveMinimum",12,0,T::Bool,One,E,&[],"",""),
f("externalDocs",35,0,M(574),One,P|E,&[],"",""),
f("format",6,0,T::Str,One,E,&[],"",""),
f("id",1,0,T::Str,One,E,&[],"",""),
f("items",24,0,O(575,Or::Schemas),One,P|E,&[],"",""),
f("maxItems",16,0,T::I64,One,P|E,&[],"",""),
f("maxLength",13,0,T::I64,One,P|E,&[],"",""),
f("maxProperties",21,0,T::I64,One,P|E,&[],"",""),
f("maximum",9,0,T::F64,One,P|E,&[],"",""),
f("minItems",17,0,T::I64,One,P|E,&[],"",""),
f("minLength",14,0,T::I64,One,P|E,&[],"",""),
f("minProperties",22,0,T::I64,One,P|E,&[],"",""),
f("minimum",11,0,T::F64,One,P|E,&[],"",""),
f("multipleOf",19,0,T::F64,One,P|E,&[],"",""),
f("not",28,0,M(575),One,P|E,&[],"",""),
f("nullable",37,0,T::Bool,One,E,&[],"",""),
f("oneOf",26,0,M(575),List,E|LA,&[],"",""),
f("pattern",15,0,T::Str,One,E,&[],"",""),
f("patternProperties",31,0,M(575),Map,E,&[],"",""),
f("properties",29,0,M(575),Map,E,&[],"",""),
f("required",23,0,T::Str,List,E|LA,&[],"",""),
f("title",7,0,T::Str,One,E,&[],"",""),
f("type",5,0,T::Str,One,E,&[],"",""),
f("uniqueItems",18,0,T::Bool,One,E,&[],"",""),
f("x-kubernetes-embedded-resource",39,0,T::Bool,One,E,&[],"",""),
f("x-kubernetes-int-or-string",40,0,T::Bool,One,E,&[],"",""),
f("x-kubernetes-list-map-keys",41,0,T::Str,List,E|LA,&[],"",""),
f("x-kubernetes-list-type",42,0,T::Str,One,P|E,&[],"",""),
f("x-kubernetes-map-type",43,0,T::Str,One,P|E,&[],"",""),
f("x-kubernetes-preserve-unknown-fields",38,0,T::Bool,One,P|E,&[],"",""),
f("x-kubernetes-validations",44,0,M(578),List,E|LM|PM,&["rule"],"rule",""),
];
#[rustfmt::skip]
static F576: &[Field] = &[
f("jsonPath",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F577: &[Field] = &[
f("name",2,0,T::Str,One,R,&[],"",""),
f("namespace",1,0,T::Str,One,R,&[],"",""),
f("path",3,0,T::Str,One,P|E,&[],"",""),
f("port",4,0,T::I32,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F578: &[Field] = &[
f("fieldPath",5,0,T::Str,One,E,&[],"",""),
f("message",2,0,T::Str,One,E,&[],"",""),
f("messageExpression",3,0,T::Str,One,E,&[],"",""),
f("optionalOldSelf",6,0,T::Bool,One,P|E,&[],"",""),
f("reason",4,0,T::Str,One,P|E,&[],"",""),
f("rule",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F579: &[Field] = &[
f("caBundle",2,0,T::Bytes,One,E,&[],"",""),
f("service",1,0,M(577),One,P|E,&[],"",""),
f("url",3,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F580: &[Field] = &[
f("clientConfig",2,0,M(579),One,P|E,&[],"",""),
f("conversionReviewVersions",3,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F581: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("preferredVersion",3,0,M(595),One,E,&[],"",""),
f("serverAddressByClientCIDRs",4,0,M(612),List,E|LA,&[],"",""),
f("versions",2,0,M(595),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F582: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("groups",1,0,M(581),List,R|LA,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F583: &[Field] = &[
f("categories",7,0,T::Str,List,E|LA,&[],"",""),
f("group",8,0,T::Str,One,E,&[],"",""),
f("kind",3,0,T::Str,One,R,&[],"",""),
f("name",1,0,T::Str,One,R,&[],"",""),
f("namespaced",2,0,T::Bool,One,R,&[],"",""),
f("shortNames",5,0,T::Str,List,E|LA,&[],"",""),
f("singularName",6,0,T::Str,One,R,&[],"",""),
f("storageVersionHash",10,0,T::Str,One,E,&[],"",""),
f("verbs",4,0,T::Strs,One,R,&[],"",""),
f("version",9,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F584: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("groupVersion",1,0,T::Str,One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("resources",2,0,M(583),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F585: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("serverAddressByClientCIDRs",2,0,M(612),List,R|LA,&[],"",""),
f("versions",1,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F586: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("dryRun",1,0,T::Str,List,E|LA,&[],"",""),
f("fieldManager",3,0,T::Str,One,R,&[],"",""),
f("force",2,0,T::Bool,One,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F587: &[Field] = &[
f("lastTransitionTime",4,0,T::Time,One,R,&[],"",""),
f("message",6,0,T::Str,One,R,&[],"",""),
f("observedGeneration",3,0,T::I64,One,E,&[],"",""),
f("reason",5,0,T::Str,One,R,&[],"",""),
f("status",2,0,T::Str,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F588: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("dryRun",1,0,T::Str,List,E|LA,&[],"",""),
f("fieldManager",3,0,T::Str,One,E,&[],"",""),
f("fieldValidation",4,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F589: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("dryRun",5,0,T::Str,List,E|LA,&[],"",""),
f("gracePeriodSeconds",1,0,T::I64,One,P|E,&[],"",""),
f("ignoreStoreReadErrorWithClusterBreakingPotential",6,0,T::Bool,One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("orphanDependents",3,0,T::Bool,One,P|E,&[],"",""),
f("preconditions",2,0,M(610),One,P|E,&[],"",""),
f("propagationPolicy",4,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F590: &[Field] = &[
f("key",1,0,T::Str,One,R,&[],"",""),
f("operator",2,0,T::Str,One,R,&[],"",""),
f("values",3,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F591: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("resourceVersion",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F592: &[Field] = &[
f("group",1,0,T::Str,One,R,&[],"",""),
f("kind",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F593: &[Field] = &[
f("group",1,0,T::Str,One,R,&[],"",""),
f("resource",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F594: &[Field] = &[
f("group",1,0,T::Str,One,R,&[],"",""),
f("version",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F595: &[Field] = &[
f("groupVersion",1,0,T::Str,One,R,&[],"",""),
f("version",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F596: &[Field] = &[
f("group",1,0,T::Str,One,R,&[],"",""),
f("kind",3,0,T::Str,One,R,&[],"",""),
f("version",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F597: &[Field] = &[
f("group",1,0,T::Str,One,R,&[],"",""),
f("resource",3,0,T::Str,One,R,&[],"",""),
f("version",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F598: &[Field] = &[
f("matchExpressions",2,0,M(599),List,E|LA,&[],"",""),
f("matchLabels",1,0,T::Str,Map,E,&[],"",""),
];
#[rustfmt::skip]
static F599: &[Field] = &[
f("key",1,0,T::Str,One,R,&[],"",""),
f("operator",2,0,T::Str,One,R,&[],"",""),
f("values",3,0,T::Str,List,E|LA,&[],"",""),
];
#[rustfmt::skip]
static F600: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,T::Raw,List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F601: &[Field] = &[
f("continue",3,0,T::Str,One,E,&[],"",""),
f("remainingItemCount",4,0,T::I64,One,P|E,&[],"",""),
f("resourceVersion",2,0,T::Str,One,E,&[],"",""),
f("selfLink",1,0,T::Str,One,E,&[],"",""),
f("shardInfo",5,0,M(613),One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F602: &[Field] = &[
f("allowWatchBookmarks",9,0,T::Bool,One,E,&[],"",""),
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("continue",8,0,T::Str,One,E,&[],"",""),
f("fieldSelector",2,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("labelSelector",1,0,T::Str,One,E,&[],"",""),
f("limit",7,0,T::I64,One,E,&[],"",""),
f("resourceVersion",4,0,T::Str,One,E,&[],"",""),
f("resourceVersionMatch",10,0,T::Str,One,E,&[],"",""),
f("sendInitialEvents",11,0,T::Bool,One,P|E,&[],"",""),
f("shardSelector",15,0,T::Str,One,E,&[],"",""),
f("timeoutSeconds",5,0,T::I64,One,P|E,&[],"",""),
f("watch",3,0,T::Bool,One,E,&[],"",""),
];
#[rustfmt::skip]
static F603: &[Field] = &[
f("apiVersion",3,0,T::Str,One,E,&[],"",""),
f("fieldsType",6,0,T::Str,One,E,&[],"",""),
f("fieldsV1",7,0,T::Fields,One,P|E,&[],"",""),
f("manager",1,0,T::Str,One,E,&[],"",""),
f("operation",2,0,T::Str,One,E,&[],"",""),
f("subresource",8,0,T::Str,One,E,&[],"",""),
f("time",4,0,T::Time,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F604: &[Field] = &[
f("annotations",12,0,T::Str,Map,E,&[],"",""),
f("creationTimestamp",8,0,T::Time,One,E|Z,&[],"",""),
f("deletionGracePeriodSeconds",10,0,T::I64,One,P|E,&[],"",""),
f("deletionTimestamp",9,0,T::Time,One,P|E,&[],"",""),
f("finalizers",14,0,T::Str,List,E|LS|PM,&[],"",""),
f("generateName",2,0,T::Str,One,E,&[],"",""),
f("generation",7,0,T::I64,One,E,&[],"",""),
f("labels",11,0,T::Str,Map,E,&[],"",""),
f("managedFields",17,0,M(603),List,E|LA,&[],"",""),
f("name",1,0,T::Str,One,E,&[],"",""),
f("namespace",3,0,T::Str,One,E,&[],"",""),
f("ownerReferences",13,0,M(605),List,E|LM|PM,&["uid"],"uid",""),
f("resourceVersion",6,0,T::Str,One,E,&[],"",""),
f("selfLink",4,0,T::Str,One,E,&[],"",""),
f("uid",5,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F605: &[Field] = &[
f("apiVersion",5,0,T::Str,One,R,&[],"",""),
f("blockOwnerDeletion",7,0,T::Bool,One,P|E,&[],"",""),
f("controller",6,0,T::Bool,One,P|E,&[],"",""),
f("kind",1,0,T::Str,One,R,&[],"",""),
f("name",3,0,T::Str,One,R,&[],"",""),
f("uid",4,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F606: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(604),One,E,&[],"",""),
];
#[rustfmt::skip]
static F607: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("items",2,0,M(606),List,R,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
];
#[rustfmt::skip]
static F608: &[Field] = &[
];
#[rustfmt::skip]
static F609: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("dryRun",1,0,T::Str,List,E|LA,&[],"",""),
f("fieldManager",3,0,T::Str,One,E,&[],"",""),
f("fieldValidation",4,0,T::Str,One,E,&[],"",""),
f("force",2,0,T::Bool,One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F610: &[Field] = &[
f("resourceVersion",2,0,T::Str,One,P|E,&[],"",""),
f("uid",1,0,T::Str,One,P|E,&[],"",""),
];
#[rustfmt::skip]
static F611: &[Field] = &[
f("paths",1,0,T::Str,List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F612: &[Field] = &[
f("clientCIDR",1,0,T::Str,One,R,&[],"",""),
f("serverAddress",2,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F613: &[Field] = &[
f("selector",1,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F614: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("code",6,0,T::I32,One,E,&[],"",""),
f("details",5,0,M(616),One,P|E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("message",3,0,T::Str,One,E,&[],"",""),
f("metadata",1,0,M(601),One,E,&[],"",""),
f("reason",4,0,T::Str,One,E,&[],"",""),
f("status",2,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F615: &[Field] = &[
f("field",3,0,T::Str,One,E,&[],"",""),
f("message",2,0,T::Str,One,E,&[],"",""),
f("reason",1,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F616: &[Field] = &[
f("causes",4,0,M(615),List,E|LA,&[],"",""),
f("group",2,0,T::Str,One,E,&[],"",""),
f("kind",3,0,T::Str,One,E,&[],"",""),
f("name",1,0,T::Str,One,E,&[],"",""),
f("retryAfterSeconds",5,0,T::I32,One,E,&[],"",""),
f("uid",6,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F617: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("columnDefinitions",0,0,M(618),List,R|LA,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
f("metadata",0,0,M(601),One,E,&[],"",""),
f("rows",0,0,M(620),List,R|LA,&[],"",""),
];
#[rustfmt::skip]
static F618: &[Field] = &[
f("description",0,0,T::Str,One,R,&[],"",""),
f("format",0,0,T::Str,One,R,&[],"",""),
f("name",0,0,T::Str,One,R,&[],"",""),
f("priority",0,0,T::I32,One,R,&[],"",""),
f("type",0,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F619: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("includeObject",1,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F620: &[Field] = &[
f("cells",0,0,T::Json,List,R|LA,&[],"",""),
f("conditions",0,0,M(621),List,E|LA,&[],"",""),
f("object",0,0,T::Raw,One,E,&[],"",""),
];
#[rustfmt::skip]
static F621: &[Field] = &[
f("message",0,0,T::Str,One,E,&[],"",""),
f("reason",0,0,T::Str,One,E,&[],"",""),
f("status",0,0,T::Str,One,R,&[],"",""),
f("type",0,0,T::Str,One,R,&[],"",""),
];
#[rustfmt::skip]
static F622: &[Field] = &[
f("nanos",2,0,T::I32,One,R,&[],"",""),
f("seconds",1,0,T::I64,One,R,&[],"",""),
];
#[rustfmt::skip]
static F623: &[Field] = &[
f("apiVersion",0,0,T::Str,One,E,&[],"",""),
f("dryRun",1,0,T::Str,List,E|LA,&[],"",""),
f("fieldManager",2,0,T::Str,One,E,&[],"",""),
f("fieldValidation",3,0,T::Str,One,E,&[],"",""),
f("kind",0,0,T::Str,One,E,&[],"",""),
];
#[rustfmt::skip]
static F624: &[Field] = &[
f("object",2,0,T::Raw,One,R,&[],"",""),
f("type",1,0,T::Str,One,R,&[],"",""),
];
/// Index of a message, by a short name the kinds table uses.
#[allow(dead_code, reason = "one constant per top-level message, used or not")]
#[rustfmt::skip]
pub(crate) mod index {
pub(crate) const ADMISSIONREGISTRATION_V1_MUTATINGADMISSIONPOLICY: u16 = 6;
pub(crate) const ADMISSIONREGISTRATION_V1_MUTATINGADMISSIONPOLICYBINDING: u16 = 7;
pub(crate) const ADMISSIONREGISTRATION_V1_MUTATINGADMISSIONPOLICYBINDINGLIST: u16 = 8;
pub(crate) const ADMISSIONREGISTRATION_V1_MUTATINGADMISSIONPOLICYLIST: u16 = 10;
pub(crate) const ADMISSIONREGISTRATION_V1_MUTATINGWEBHOOKCONFIGURATION: u16 = 13;
pub(crate) const ADMISSIONREGISTRATION_V1_MUTATINGWEBHOOKCONFIGURATIONLIST: u16 = 14;
pub(crate) const ADMISSIONREGISTRATION_V1_VALIDATINGADMISSIONPOLICY: u16 = 23;
pub(crate) const ADMISSIONREGISTRATION_V1_VALIDATINGADMISSIONPOLICYBINDING: u16 = 24;
pub(crate) const ADMISSIONREGISTRATION_V1_VALIDATINGADMISSIONPOLICYBINDINGLIST: u16 = 25;
pub(crate) const ADMISSIONREGISTRATION_V1_VALIDATINGADMISSIONPOLICYLIST: u16 = 27;
pub(crate) const ADMISSIONREGISTRATION_V1_VALIDATINGWEBHOOKCONFIGURATION: u16 = 31;
pub(crate) const ADMISSIONREGISTRATION_V1_VALIDATINGWEBHOOKCONFIGURATIONLIST: u16 = 32;
pub(crate) const APPS_V1_CONTROLLERREVISION: u16 = 36;
pub(crate) const APPS_V1_CONTROLLERREVISIONLIST: u16 = 37;
pub(crate) const APPS_V1_DAEMONSET: u16 = 38;
pub(crate) const APPS_V1_DAEMONSETLIST: u16 = 40;
pub(crate) const APPS_V1_DEPLOYMENT: u16 = 44;
pub(crate) const APPS_V1_DEPLOYMENTLIST: u16 = 46;
pub(crate) const APPS_V1_REPLICASET: u16 = 50;
pub(crate) const APPS_V1_REPLICASETLIST: u16 = 52;
pub(crate) const APPS_V1_STATEFULSET: u16 = 58;
pub(crate) const APPS_V1_STATEFULSETLIST: u16 = 60;
pub(crate) const AUTHENTICATION_V1_SELFSUBJECTREVIEW: u16 = 67;
pub(crate) const AUTHENTICATION_V1_TOKENREQUEST: u16 = 69;
pub(crate) const AUTHENTICATION_V1_TOKENREVIEW: u16 = 72;
pub(crate) const AUTHORIZATION_V1_LOCALSUBJECTACCESSREVIEW: u16 = 78;
pub(crate) const AUTHORIZATION_V1_SELFSUBJECTACCESSREVIEW: u16 = 83;
pub(crate) const AUTHORIZATION_V1_SELFSUBJECTRULESREVIEW: u16 = 85;
pub(crate) const AUTHORIZATION_V1_SUBJECTACCESSREVIEW: u16 = 87;
pub(crate) const AUTOSCALING_V1_HORIZONTALPODAUTOSCALER: u16 = 96;
pub(crate) const AUTOSCALING_V1_HORIZONTALPODAUTOSCALERLIST: u16 = 98;
pub(crate) const AUTOSCALING_V1_SCALE: u16 = 109;
pub(crate) const AUTOSCALING_V2_HORIZONTALPODAUTOSCALER: u16 = 119;
pub(crate) const AUTOSCALING_V2_HORIZONTALPODAUTOSCALERLIST: u16 = 122;
pub(crate) const BATCH_V1_CRONJOB: u16 = 136;
pub(crate) const BATCH_V1_CRONJOBLIST: u16 = 137;
pub(crate) const BATCH_V1_JOB: u16 = 140;
pub(crate) const BATCH_V1_JOBLIST: u16 = 142;
pub(crate) const CERTIFICATES_V1_CERTIFICATESIGNINGREQUEST: u16 = 153;
pub(crate) const CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTLIST: u16 = 155;
pub(crate) const COORDINATION_V1_LEASE: u16 = 158;
pub(crate) const COORDINATION_V1_LEASELIST: u16 = 159;
pub(crate) const CORE_V1_BINDING: u16 = 169;
pub(crate) const CORE_V1_COMPONENTSTATUS: u16 = 180;
pub(crate) const CORE_V1_COMPONENTSTATUSLIST: u16 = 181;
pub(crate) const CORE_V1_CONFIGMAP: u16 = 182;
pub(crate) const CORE_V1_CONFIGMAPLIST: u16 = 185;
pub(crate) const CORE_V1_ENDPOINTS: u16 = 210;
pub(crate) const CORE_V1_ENDPOINTSLIST: u16 = 211;
pub(crate) const CORE_V1_EVENT: u16 = 218;
pub(crate) const CORE_V1_EVENTLIST: u16 = 219;
pub(crate) const CORE_V1_LIMITRANGE: u16 = 245;
pub(crate) const CORE_V1_LIMITRANGELIST: u16 = 247;
pub(crate) const CORE_V1_NAMESPACE: u16 = 256;
pub(crate) const CORE_V1_NAMESPACELIST: u16 = 258;
pub(crate) const CORE_V1_NODE: u16 = 261;
pub(crate) const CORE_V1_NODELIST: u16 = 270;
pub(crate) const CORE_V1_NODEPROXYOPTIONS: u16 = 271;
pub(crate) const CORE_V1_PERSISTENTVOLUME: u16 = 283;
pub(crate) const CORE_V1_PERSISTENTVOLUMECLAIM: u16 = 284;
pub(crate) const CORE_V1_PERSISTENTVOLUMECLAIMLIST: u16 = 286;
pub(crate) const CORE_V1_PERSISTENTVOLUMELIST: u16 = 291;
pub(crate) const CORE_V1_POD: u16 = 296;
pub(crate) const CORE_V1_PODATTACHOPTIONS: u16 = 300;
pub(crate) const CORE_V1_PODEXECOPTIONS: u16 = 305;
pub(crate) const CORE_V1_PODLIST: u16 = 308;
pub(crate) const CORE_V1_PODLOGOPTIONS: u16 = 309;
pub(crate) const CORE_V1_PODPORTFORWARDOPTIONS: u16 = 311;
pub(crate) const CORE_V1_PODPROXYOPTIONS: u16 = 312;
pub(crate) const CORE_V1_PODSTATUSRESULT: u16 = 322;
pub(crate) const CORE_V1_PODTEMPLATE: u16 = 323;
pub(crate) const CORE_V1_PODTEMPLATELIST: u16 = 324;
pub(crate) const CORE_V1_PODTEMPLATESPEC: u16 = 325;
pub(crate) const CORE_V1_RANGEALLOCATION: u16 = 337;
pub(crate) const CORE_V1_REPLICATIONCONTROLLER: u16 = 338;
pub(crate) const CORE_V1_REPLICATIONCONTROLLERLIST: u16 = 340;
pub(crate) const CORE_V1_RESOURCEQUOTA: u16 = 346;
pub(crate) const CORE_V1_RESOURCEQUOTALIST: u16 = 347;
pub(crate) const CORE_V1_SECRET: u16 = 358;
pub(crate) const CORE_V1_SECRETLIST: u16 = 361;
pub(crate) const CORE_V1_SERIALIZEDREFERENCE: u16 = 366;
pub(crate) const CORE_V1_SERVICE: u16 = 367;
pub(crate) const CORE_V1_SERVICEACCOUNT: u16 = 368;
pub(crate) const CORE_V1_SERVICEACCOUNTLIST: u16 = 369;
pub(crate) const CORE_V1_SERVICELIST: u16 = 371;
pub(crate) const CORE_V1_SERVICEPROXYOPTIONS: u16 = 373;
pub(crate) const DISCOVERY_V1_ENDPOINTSLICE: u16 = 405;
pub(crate) const DISCOVERY_V1_ENDPOINTSLICELIST: u16 = 406;
pub(crate) const EVENTS_V1_EVENT: u16 = 409;
pub(crate) const EVENTS_V1_EVENTLIST: u16 = 410;
pub(crate) const FLOWCONTROL_V1_FLOWSCHEMA: u16 = 414;
pub(crate) const FLOWCONTROL_V1_FLOWSCHEMALIST: u16 = 416;
pub(crate) const FLOWCONTROL_V1_PRIORITYLEVELCONFIGURATION: u16 = 424;
pub(crate) const FLOWCONTROL_V1_PRIORITYLEVELCONFIGURATIONLIST: u16 = 426;
pub(crate) const NETWORKING_V1_IPADDRESS: u16 = 437;
pub(crate) const NETWORKING_V1_IPADDRESSLIST: u16 = 438;
pub(crate) const NETWORKING_V1_INGRESS: u16 = 441;
pub(crate) const NETWORKING_V1_INGRESSCLASS: u16 = 443;
pub(crate) const NETWORKING_V1_INGRESSCLASSLIST: u16 = 444;
pub(crate) const NETWORKING_V1_INGRESSLIST: u16 = 447;
pub(crate) const NETWORKING_V1_NETWORKPOLICY: u16 = 457;
pub(crate) const NETWORKING_V1_NETWORKPOLICYLIST: u16 = 460;
pub(crate) const NETWORKING_V1_SERVICECIDR: u16 = 466;
pub(crate) const NETWORKING_V1_SERVICECIDRLIST: u16 = 467;
pub(crate) const NODE_V1_RUNTIMECLASS: u16 = 471;
pub(crate) const NODE_V1_RUNTIMECLASSLIST: u16 = 472;
pub(crate) const POLICY_V1_EVICTION: u16 = 474;
pub(crate) const POLICY_V1_PODDISRUPTIONBUDGET: u16 = 475;
pub(crate) const POLICY_V1_PODDISRUPTIONBUDGETLIST: u16 = 476;
pub(crate) const RBAC_V1_CLUSTERROLE: u16 = 480;
pub(crate) const RBAC_V1_CLUSTERROLEBINDING: u16 = 481;
pub(crate) const RBAC_V1_CLUSTERROLEBINDINGLIST: u16 = 482;
pub(crate) const RBAC_V1_CLUSTERROLELIST: u16 = 483;
pub(crate) const RBAC_V1_ROLE: u16 = 485;
pub(crate) const RBAC_V1_ROLEBINDING: u16 = 486;
pub(crate) const RBAC_V1_ROLEBINDINGLIST: u16 = 487;
pub(crate) const RBAC_V1_ROLELIST: u16 = 488;
pub(crate) const RESOURCE_V1_DEVICECLASS: u16 = 506;
pub(crate) const RESOURCE_V1_DEVICECLASSLIST: u16 = 508;
pub(crate) const RESOURCE_V1_RESOURCECLAIM: u16 = 523;
pub(crate) const RESOURCE_V1_RESOURCECLAIMLIST: u16 = 525;
pub(crate) const RESOURCE_V1_RESOURCECLAIMTEMPLATE: u16 = 528;
pub(crate) const RESOURCE_V1_RESOURCECLAIMTEMPLATELIST: u16 = 529;
pub(crate) const RESOURCE_V1_RESOURCESLICE: u16 = 532;
pub(crate) const RESOURCE_V1_RESOURCESLICELIST: u16 = 533;
pub(crate) const SCHEDULING_V1_PRIORITYCLASS: u16 = 535;
pub(crate) const SCHEDULING_V1_PRIORITYCLASSLIST: u16 = 536;
pub(crate) const STORAGE_V1_CSIDRIVER: u16 = 537;
pub(crate) const STORAGE_V1_CSIDRIVERLIST: u16 = 538;
pub(crate) const STORAGE_V1_CSINODE: u16 = 540;
pub(crate) const STORAGE_V1_CSINODELIST: u16 = 542;
pub(crate) const STORAGE_V1_CSISTORAGECAPACITY: u16 = 544;
pub(crate) const STORAGE_V1_CSISTORAGECAPACITYLIST: u16 = 545;
pub(crate) const STORAGE_V1_STORAGECLASS: u16 = 546;
pub(crate) const STORAGE_V1_STORAGECLASSLIST: u16 = 547;
pub(crate) const STORAGE_V1_VOLUMEATTACHMENT: u16 = 549;
pub(crate) const STORAGE_V1_VOLUMEATTACHMENTLIST: u16 = 550;
pub(crate) const STORAGE_V1_VOLUMEATTRIBUTESCLASS: u16 = 554;
pub(crate) const STORAGE_V1_VOLUMEATTRIBUTESCLASSLIST: u16 = 555;
pub(crate) const APIEXTENSIONS_V1_CONVERSIONREVIEW: u16 = 560;
pub(crate) const APIEXTENSIONS_V1_CUSTOMRESOURCEDEFINITION: u16 = 563;
pub(crate) const APIEXTENSIONS_V1_CUSTOMRESOURCEDEFINITIONLIST: u16 = 565;
pub(crate) const META_V1_APIGROUP: u16 = 581;
pub(crate) const META_V1_APIGROUPLIST: u16 = 582;
pub(crate) const META_V1_APIRESOURCELIST: u16 = 584;
pub(crate) const META_V1_APIVERSIONS: u16 = 585;
pub(crate) const META_V1_APPLYOPTIONS: u16 = 586;
pub(crate) const META_V1_CREATEOPTIONS: u16 = 588;
pub(crate) const META_V1_DELETEOPTIONS: u16 = 589;
pub(crate) const META_V1_GETOPTIONS: u16 = 591;
pub(crate) const META_V1_LIST: u16 = 600;
pub(crate) const META_V1_LISTOPTIONS: u16 = 602;
pub(crate) const META_V1_OBJECTMETA: u16 = 604;
pub(crate) const META_V1_PARTIALOBJECTMETADATA: u16 = 606;
pub(crate) const META_V1_PARTIALOBJECTMETADATALIST: u16 = 607;
pub(crate) const META_V1_PATCHOPTIONS: u16 = 609;
pub(crate) const META_V1_STATUS: u16 = 614;
pub(crate) const META_V1_TABLE: u16 = 617;
pub(crate) const META_V1_TABLEOPTIONS: u16 = 619;
pub(crate) const META_V1_UPDATEOPTIONS: u16 = 623;
}
