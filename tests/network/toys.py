"""Fabrics and libraries without overheads: the closed forms must come out exactly."""

from rapid_llm.network import Fabric, Library, LinkCost, Protocol, Tier

FREE = LinkCost(launch=0, step=0, efficiency=1.0)


def library(*algorithms: str, link: LinkCost = FREE) -> Library:
    return Library(
        name="toy", protocols={"only": Protocol(algorithms=algorithms)}, links={"intra": link, "inter": link}
    )


def node(span: int = 8, bandwidth: float = 100e9, latency: float = 0.0, **more) -> Tier:
    return Tier("node", span, bandwidth, latency, "toy", **more)


def leaf(span: int = 1024, bandwidth: float = 10e9, latency: float = 0.0) -> Tier:
    return Tier("leaf", span, bandwidth, latency, "toy", "switch", "inter")


def fabric(*tiers: Tier) -> Fabric:
    return Fabric(tiers or (node(),), "toy")
