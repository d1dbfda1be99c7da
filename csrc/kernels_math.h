// Small arithmetic over an Isa's vectors; included before kernels_impl.h, inside the instruction set's namespace.

constexpr float NF4_VALUES[16] = {
    // QLoRA (arXiv:2305.14314), appendix E; the constants of bitsandbytes
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f,
};

inline size_t act_bytes_of(Act act) { return act == ACT_F32 || act == ACT_ROUNDED ? 4 : act == ACT_BF16 ? 2 : 1; }

// e^x to about one unit in the last place, for x up to 88; what lies below -87 is 0, and so is minus infinity's.
inline F exp16(F x) {
    const F low = Isa::set1(-87.0f);
    const F clipped = Isa::min(Isa::max(x, low), Isa::set1(88.0f));
    const F n = Isa::rint(Isa::mul(clipped, Isa::set1(1.44269504088896341f)));
    F r = Isa::fma(n, Isa::set1(-0.693359375f), clipped);
    r = Isa::fma(n, Isa::set1(2.12194440e-4f), r);
    F p = Isa::set1(1.9875691500e-4f);
    p = Isa::fma(p, r, Isa::set1(1.3981999507e-3f));
    p = Isa::fma(p, r, Isa::set1(8.3334519073e-3f));
    p = Isa::fma(p, r, Isa::set1(4.1665795894e-2f));
    p = Isa::fma(p, r, Isa::set1(1.6666665459e-1f));
    p = Isa::fma(p, r, Isa::set1(5.0000001201e-1f));
    p = Isa::add(Isa::fma(Isa::mul(p, r), r, r), Isa::set1(1.0f));
    return Isa::keep_at_least(x, low, Isa::mul(p, Isa::power_of_two(n)));
}
